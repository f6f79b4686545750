# Installs Starling into a fresh folder and builds the program CONSUMER against it, as a user would.
function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/${CONSUMER} -B ${WORK}/${CONSUMER} -G Ninja -DCMAKE_PREFIX_PATH=${WORK}/prefix
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS=${FLAGS} -DCMAKE_EXE_LINKER_FLAGS=${FLAGS})
run(${CMAKE_COMMAND} --build ${WORK}/${CONSUMER})
run(${WORK}/${CONSUMER}/${CONSUMER})
if(TOOL AND CONSUMER STREQUAL "consumer")
  run(${WORK}/prefix/bin/starling --version)
endif()

# Programs that were built against the installation, and its tool by a name without a folder, find fabrics with an engine.
if(TOOL AND TORCH AND CONSUMER STREQUAL "consumer")
  file(WRITE ${WORK}/way "#!/bin/sh\nexec env STARLING_HOST=\"$1\" sh -c \"$2\"\n")
  file(CHMOD ${WORK}/way PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  set(ENV{PATH} "${WORK}/prefix/bin:$ENV{PATH}")
  foreach(words "-n;2;--fabric;c10d" "--hosts;a,b;--address;127.0.0.1;--launcher;${WORK}/way")
    run(sh -c "starling \"$@\"" sh run --timeout 60 ${words} -- ${WORK}/consumer/consumer join)
  endforeach()
  # Alone it does not, and says where it has looked.
  file(COPY ${WORK}/prefix/bin/starling DESTINATION ${WORK}/alone)
  execute_process(COMMAND ${WORK}/alone/starling run -n 1 --fabric c10d true RESULT_VARIABLE failed ERROR_VARIABLE said)
  if(failed EQUAL 0 OR NOT said MATCHES "no libstarling_c10d.so in [^ ]*alone/?, .*STARLING_PLUGIN_PATH")
    message(FATAL_ERROR "a tool without its fabrics says: ${said}")
  endif()
  run(${CMAKE_COMMAND} -E env STARLING_PLUGIN_PATH=/nowhere:${WORK}/prefix/lib/starling ${WORK}/alone/starling run -n 1 --fabric c10d true)
endif()
