# Writes FILE as a C++ array (a string literal would be too long for some compilers).
file(READ ${FILE} hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
file(WRITE ${OUTPUT}
     "#include <string_view>\nnamespace starling::embedded {\nstatic const unsigned char bytes[] = {${bytes}};\n"
     "std::string_view ${FUNCTION}();\n"
     "std::string_view ${FUNCTION}() { return {reinterpret_cast<const char*>(bytes), sizeof(bytes)}; }\n}\n")
