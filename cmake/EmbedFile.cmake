# embed_file(TARGET FILE FUNCTION): compiles FILE into TARGET as `std::string_view starling::embedded::FUNCTION()`.
function(embed_file target file function)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/embedded_${function}.cpp)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DFILE=${file} -DOUTPUT=${output} -DFUNCTION=${function} -P
            ${PROJECT_SOURCE_DIR}/cmake/WriteEmbedded.cmake
    DEPENDS ${file} ${PROJECT_SOURCE_DIR}/cmake/WriteEmbedded.cmake
    COMMENT "Embedding ${file}"
    VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()
