// A shared library that is not an extension.
extern "C" int answer();
extern "C" int answer() {
  return 42;
}
