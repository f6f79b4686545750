# Warnings and sanitizers for our own targets only: users' code never sees them.
add_library(starling_flags INTERFACE)
target_compile_options(starling_flags INTERFACE -Wall -Wextra -Wshadow -Wconversion -Wpedantic -Wnon-virtual-dtor -Woverloaded-virtual)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(starling_flags INTERFACE -Wno-restrict) # GCC 12 warns wrongly about std::string sums (PR 105651)
endif()
if(STARLING_WERROR)
  target_compile_options(starling_flags INTERFACE -Werror)
endif()

# starling_with_torch(TARGET): torch's headers cost ten seconds per file, so they are compiled once, ahead, for starling_torch; what others
# compile must then be position-independent in the same way. ccache needs to be told that all this is fine.
function(starling_with_torch target)
  if(target STREQUAL "starling_torch")
    target_precompile_headers(${target} PRIVATE ${PROJECT_SOURCE_DIR}/starling/train/torch_version.h)
  else()
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
    target_link_libraries(${target} PRIVATE fmt::fmt) # the same definitions
    target_precompile_headers(${target} REUSE_FROM starling_torch)
  endif()
  if(CCACHE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -fpch-preprocess)
    set_target_properties(
      ${target} PROPERTIES CXX_COMPILER_LAUNCHER
                           "${CMAKE_COMMAND};-E;env;CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime;${CCACHE}")
  endif()
endfunction()

if(STARLING_SANITIZE)
  target_compile_options(starling_flags INTERFACE -fsanitize=${STARLING_SANITIZE} -fno-omit-frame-pointer
                                                  -fno-sanitize-recover=all)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(starling_flags INTERFACE -Wno-maybe-uninitialized) # false alarms in <regex> and Eigen with sanitizers
  endif()
  target_link_options(starling_flags INTERFACE -fsanitize=${STARLING_SANITIZE})
endif()
