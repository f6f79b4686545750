# Warnings and sanitizers for our own targets only: users' code never sees them.
add_library(starling_flags INTERFACE)
target_compile_options(starling_flags INTERFACE -Wall -Wextra -Wshadow -Wconversion -Wpedantic -Wnon-virtual-dtor -Woverloaded-virtual)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(starling_flags INTERFACE -Wno-restrict) # GCC 12 warns wrongly about std::string sums (PR 105651)
endif()
if(STARLING_WERROR)
  target_compile_options(starling_flags INTERFACE -Werror)
endif()
if(STARLING_SANITIZE)
  target_compile_options(starling_flags INTERFACE -fsanitize=${STARLING_SANITIZE} -fno-omit-frame-pointer
                                                  -fno-sanitize-recover=all)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(starling_flags INTERFACE -Wno-maybe-uninitialized) # false alarms in <regex> and Eigen with sanitizers
  endif()
  target_link_options(starling_flags INTERFACE -fsanitize=${STARLING_SANITIZE})
endif()
