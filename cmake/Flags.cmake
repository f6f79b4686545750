# Warnings and sanitizers for our own targets only, not for users' code.
add_library(starling_flags INTERFACE)
target_compile_options(starling_flags INTERFACE -Wall -Wextra -Wshadow -Wconversion -Wpedantic -Wnon-virtual-dtor -Woverloaded-virtual)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(starling_flags INTERFACE -Wno-restrict -Wno-stringop-overflow) # GCC 12 warns wrongly about std::string sums (PR 105651)
endif()
if(STARLING_WERROR)
  target_compile_options(starling_flags INTERFACE -Werror)
endif()

# starling_in_batches(TARGET SIZE): compiles about SIZE sources of a folder at a time, since reading headers
# is most of the work; the remaining sources of a folder are spread over its batches. Unnamed namespaces of a
# batch become one, so names in them must be unique within a folder. Sources with their own flags are compiled
# alone.
option(STARLING_BATCHES "Compile several sources at a time: half the work when all are compiled" ON)
function(starling_in_batches target size)
  if(NOT STARLING_BATCHES)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources EXCLUDE REGEX "^[$]<") # objects of other targets
  set(folders "")
  foreach(source ${sources})
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} OUTPUT_VARIABLE name)
    cmake_path(GET name PARENT_PATH folder)
    string(MAKE_C_IDENTIFIER "in_${folder}" folder)
    list(APPEND folders ${folder})
    list(APPEND members_${folder} ${source})
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(folder ${folders})
    list(LENGTH members_${folder} count)
    math(EXPR batches "(${count} + ${size} / 2) / ${size}")
    set(index 0)
    foreach(source ${members_${folder}})
      math(EXPR batch "${index} * ${batches} / ${count}")
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder}_${batch})
      math(EXPR index "${index} + 1")
    endforeach()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()

# starling_precompile(TARGET HEADER): precompiles HEADER once and includes it first in the target's sources,
# except for sources with their own flags. starling_precompile(TARGET REUSE_FROM OTHER): reuses the other
# target's precompiled header, so both must have the same setting for position-independent code. ccache must
# be told that this is safe.
function(starling_precompile target)
  if(NOT STARLING_BATCHES)
    return()
  endif()
  if(ARGV1 STREQUAL "REUSE_FROM")
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
    target_precompile_headers(${target} REUSE_FROM ${ARGV2})
  else()
    target_precompile_headers(${target} PRIVATE ${ARGV1})
  endif()
  if(CCACHE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -fpch-preprocess)
    set_target_properties(
      ${target} PROPERTIES CXX_COMPILER_LAUNCHER
                           "${CMAKE_COMMAND};-E;env;CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime;${CCACHE}")
  endif()
endfunction()

# starling_with_torch(TARGET): torch's headers take half a minute per file, so they are precompiled once, for
# starling_torch. All such targets use the same few optimizations, or they could not share it; the
# time-consuming code is in the library, or in torch.
function(starling_with_torch target)
  target_compile_options(${target} PRIVATE -O1)
  if(target STREQUAL "starling_torch")
    starling_precompile(${target} ${PROJECT_SOURCE_DIR}/starling/train/torch_version.h)
  else()
    target_link_libraries(${target} PRIVATE fmt::fmt)  # so that definitions are the same
    starling_precompile(${target} REUSE_FROM starling_torch)
  endif()
endfunction()

if(STARLING_SANITIZE)
  target_compile_options(starling_flags INTERFACE -fsanitize=${STARLING_SANITIZE} -fno-omit-frame-pointer
                                                  -fno-sanitize-recover=all)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(starling_flags INTERFACE -Wno-maybe-uninitialized) # false alarms in <regex> and Eigen with sanitizers
  endif()
  # Eigen chooses its allocator by the sanitizer; this makes the solvers, which are compiled without, choose
  # the same one.
  target_compile_definitions(starling_flags INTERFACE EIGEN_MALLOC_ALREADY_ALIGNED=0)
  target_link_options(starling_flags INTERFACE -fsanitize=${STARLING_SANITIZE})
endif()
