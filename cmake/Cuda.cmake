# libstarling_cuda: kernel/cuda/, which programs load when they first use a buffer in CUDA memory
# (kernel/device.cpp). Built if nvcc is found; that needs neither a GPU nor a driver. nvcc is called directly,
# not as a language of the project: one pass makes the PTX, and machine code for two generations of GPUs from
# it.
option(STARLING_CUDA "Build the plugin for CUDA memory" ON)
if(NOT STARLING_CUDA OR STARLING_SANITIZE)
  return()
endif()
find_package(CUDAToolkit QUIET)
if(NOT TARGET CUDA::cudart_static OR NOT CUDAToolkit_NVCC_EXECUTABLE)
  message(STATUS "nvcc was not found: the plugin for CUDA memory is not built (the CUDA toolkit's bin/ belongs into PATH)")
  return()
endif()

set(folder ${PROJECT_SOURCE_DIR}/starling/kernel/cuda)
set(objects ${PROJECT_BINARY_DIR}/starling/cuda)
file(GLOB kernels CONFIGURE_DEPENDS ${folder}/*.cu)
# -fmad=false and -ffp-contract=off give the same bits as the kernels on the host; see kernel/element_rules.h.
set(nvcc_flags -std=c++20 -O2 -fmad=false --expt-relaxed-constexpr -gencode "arch=compute_80,code=[sm_80,sm_90,compute_80]"
               -Xcompiler=-fPIC,-fvisibility=hidden,-ffp-contract=off,-Wall,-Wextra -I${PROJECT_SOURCE_DIR} -ccbin ${CMAKE_CXX_COMPILER})
if(STARLING_WERROR)
  list(APPEND nvcc_flags -Werror=all-warnings)
endif()
set(compiled "")
set(ptx "")
foreach(source ${kernels})
  cmake_path(GET source STEM name)
  add_custom_command(
    OUTPUT ${objects}/${name}.o ${objects}/${name}.ptx
    COMMAND ${CMAKE_COMMAND} -E make_directory ${objects}/${name}
    COMMAND ${CUDAToolkit_NVCC_EXECUTABLE} ${nvcc_flags} -c ${source} -o ${objects}/${name}.o -MD -MF ${objects}/${name}.d --keep
            --keep-dir ${objects}/${name}
    # for a test; the other intermediate files are not kept
    COMMAND ${CMAKE_COMMAND} -E rename ${objects}/${name}/${name}.ptx ${objects}/${name}.ptx
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${objects}/${name}
    DEPENDS ${source}
    DEPFILE ${objects}/${name}.d
    COMMENT "Compiling kernels ${name}.cu"
    VERBATIM)
  list(APPEND compiled ${objects}/${name}.o)
  list(APPEND ptx ${objects}/${name}.ptx)
endforeach()

# Contains only the library code that it calls and that keeps no state; the rest would exist twice.
file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cpp)
add_library(starling_cuda MODULE ${sources} ${compiled} starling/base/dtype.cpp starling/base/buffer.cpp starling/base/permutation.cpp)
target_include_directories(starling_cuda PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/generated)
target_include_directories(starling_cuda SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
target_compile_features(starling_cuda PRIVATE cxx_std_20)
target_link_libraries(starling_cuda PRIVATE CUDA::cudart_static $<BUILD_INTERFACE:starling_flags>)
target_link_options(starling_cuda PRIVATE -Wl,-Bsymbolic -Wl,--exclude-libs,ALL -Wl,--no-undefined)
set_target_properties(starling_cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib/starling
                                               CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON STARLING_PTX "${ptx}"
                                               STARLING_KERNELS "${compiled}")
set_property(GLOBAL APPEND PROPERTY starling_fabrics starling_cuda)  # installed like the fabrics
