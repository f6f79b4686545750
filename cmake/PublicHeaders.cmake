# The headers that users get: those in include/starling/, and all that they include, directly or not. Other
# headers may change at any time. The list is made during installation, so that editing a header needs no new
# configuration.
cmake_minimum_required(VERSION 3.23)

# starling_public_headers(OUT ROOT WITHOUT): the headers' paths, as they are included; headers that match
# WITHOUT are left out, with those that only they include. The generated version.h is not among them.
function(starling_public_headers out root without)
  file(GLOB open RELATIVE ${root}/include ${root}/include/starling/*.h)
  set(found "")
  while(open)
    list(POP_FRONT open header)
    if(header IN_LIST found OR header MATCHES "${without}" OR header STREQUAL "starling/version.h")
      continue()
    endif()
    list(APPEND found ${header})
    starling_header_file(file ${root} ${header})
    file(STRINGS ${file} lines REGEX "^[ \t]*#[ \t]*include[ \t]*[<\"]starling/")
    foreach(line ${lines})
      string(REGEX REPLACE "^[^<\"]*[<\"]([^>\"]+).*" "\\1" included "${line}")
      list(APPEND open ${included})
    endforeach()
  endwhile()
  list(SORT found)
  set(${out} ${found} PARENT_SCOPE)
endfunction()

# starling_header_file(OUT ROOT HEADER): the file of a header.
function(starling_header_file out root header)
  foreach(folder ${root}/include ${root})
    if(EXISTS ${folder}/${header})
      set(${out} ${folder}/${header} PARENT_SCOPE)
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "a public header includes ${header}, which is not there")
endfunction()

# starling_install_headers(ROOT DESTINATION WITH_TORCH): without torch, leaves out the Trainer's headers.
function(starling_install_headers root destination with_torch)
  set(without "^$")
  if(NOT with_torch)
    set(without "^starling/(trainer|models)[.]h$")
  endif()
  starling_public_headers(headers ${root} ${without})
  cmake_path(ABSOLUTE_PATH destination BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX})
  foreach(header ${headers})
    starling_header_file(file ${root} ${header})
    cmake_path(GET header PARENT_PATH folder)
    file(INSTALL ${file} DESTINATION ${destination}/${folder})
  endforeach()
endfunction()
