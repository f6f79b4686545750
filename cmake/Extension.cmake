# Extensions: shared libraries that `starling --load` loads. They are built against the headers; the functions
# that they call are in the program that loads them, or in the shared library Starling if BUILD_SHARED_LIBS is
# on.
#
#   add_library(mine MODULE mine.cpp)
#   target_link_libraries(mine PRIVATE Starling::extension)
add_library(starling_extension INTERFACE)
add_library(Starling::extension ALIAS starling_extension)
target_compile_features(starling_extension INTERFACE cxx_std_20)
target_include_directories(
  starling_extension INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                               $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/generated>
                               $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
get_target_property(starling_type starling TYPE)
if(starling_type STREQUAL "SHARED_LIBRARY")
  target_link_libraries(starling_extension INTERFACE starling)
endif()

# starling_loads_extensions(PROGRAM): links the whole library and exports its symbols, because an extension
# may call any of them.
function(starling_loads_extensions program)
  set_target_properties(${program} PROPERTIES ENABLE_EXPORTS ON)
  if(starling_type STREQUAL "STATIC_LIBRARY")
    target_link_libraries(${program} PRIVATE -Wl,--whole-archive $<TARGET_FILE:starling> -Wl,--no-whole-archive)
    add_dependencies(${program} starling)
  endif()
endfunction()
