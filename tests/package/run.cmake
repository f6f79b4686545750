# Installs Starling into a fresh folder and builds the program CONSUMER against it, as a user would. With SHARED, first
# builds the core as a shared library in the folder BUILD.
function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

cmake_path(SET root NORMALIZE ${CMAKE_CURRENT_LIST_DIR}/../..)
if(SHARED)
  run(${CMAKE_COMMAND} -S ${root} -B ${BUILD} -G Ninja -DBUILD_SHARED_LIBS=ON -DSTARLING_TORCH=OFF -DSTARLING_MPI=OFF -DSTARLING_PYTHON=OFF
      -DSTARLING_TOOL=OFF -DSTARLING_TESTS=OFF
      -DSTARLING_BENCHMARKS=OFF -DSTARLING_CUDA=OFF)
  run(${CMAKE_COMMAND} --build ${BUILD} --target starling)
endif()

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)

# The installed headers are the public ones and those that they include.
file(GLOB public RELATIVE ${root}/include ${root}/include/starling/*.h)
if(NOT TORCH)
  list(REMOVE_ITEM public starling/trainer.h starling/models.h)
endif()
foreach(header ${public} starling/version.h)
  if(NOT EXISTS ${WORK}/prefix/include/${header})
    message(FATAL_ERROR "${header} was not installed")
  endif()
endforeach()
foreach(header starling/fabric/fabric.h starling/fabric/local/layout.h starling/flock/flock_state.h)
  if(EXISTS ${WORK}/prefix/include/${header})
    message(FATAL_ERROR "${header} was installed: a public header includes it, directly or not")
  endif()
endforeach()

run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/${CONSUMER} -B ${WORK}/${CONSUMER} -G Ninja -DCMAKE_PREFIX_PATH=${WORK}/prefix
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS=${FLAGS} -DCMAKE_EXE_LINKER_FLAGS=${FLAGS})
run(${CMAKE_COMMAND} --build ${WORK}/${CONSUMER})
run(${WORK}/${CONSUMER}/${CONSUMER})
if(SHARED)
  file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${WORK}/${CONSUMER}/${CONSUMER} RESOLVED_DEPENDENCIES_VAR libraries)
  if(NOT libraries MATCHES "${WORK}/prefix/lib[^;]*/libstarling[.]so[.][0-9]+[.][0-9]+(;|$)")
    message(FATAL_ERROR "the program does not load the installed libstarling.so but: ${libraries}")
  endif()
endif()
if(TOOL AND CONSUMER STREQUAL "consumer")
  run(${WORK}/prefix/bin/starling --version)
endif()

# Programs built against the installation find fabrics with an engine; so does its tool when it is called through PATH.
if(TOOL AND TORCH AND CONSUMER STREQUAL "consumer")
  file(WRITE ${WORK}/way "#!/bin/sh\nexec env STARLING_HOST=\"$1\" sh -c \"$2\"\n")
  file(CHMOD ${WORK}/way PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  set(ENV{PATH} "${WORK}/prefix/bin:$ENV{PATH}")
  foreach(words "-n;2;--fabric;c10d" "--hosts;a,b;--address;127.0.0.1;--launcher;${WORK}/way")
    run(sh -c "starling \"$@\"" sh run --timeout 60 ${words} -- ${WORK}/consumer/consumer join)
  endforeach()
  # A copy of the tool alone does not find them, and says where it has looked.
  file(COPY ${WORK}/prefix/bin/starling DESTINATION ${WORK}/alone)
  execute_process(COMMAND ${WORK}/alone/starling run -n 1 --fabric c10d true RESULT_VARIABLE failed ERROR_VARIABLE said)
  if(failed EQUAL 0 OR NOT said MATCHES "no libstarling_c10d.so in [^ ]*alone/?, .*STARLING_PLUGIN_PATH")
    message(FATAL_ERROR "a tool without its fabrics says: ${said}")
  endif()
  run(${CMAKE_COMMAND} -E env STARLING_PLUGIN_PATH=/nowhere:${WORK}/prefix/lib/starling ${WORK}/alone/starling run -n 1 --fabric c10d true)
endif()
