# Rules for generated code: libraries of their own, without our warnings, quick to compile.
find_package(Protobuf REQUIRED)
find_program(GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)
set(SARSEN_GENERATED ${CMAKE_BINARY_DIR}/generated)
file(MAKE_DIRECTORY ${SARSEN_GENERATED})

# sarsen_generate(RESULT FILE KIND): adds the rule for FILE.proto; KIND is pb or grpc.pb.
function(sarsen_generate result file kind)
  set(out ${SARSEN_GENERATED}/${file}.${kind})
  if(kind STREQUAL "pb")
    set(arguments --cpp_out=${SARSEN_GENERATED})
  else()
    set(arguments --grpc_out=${SARSEN_GENERATED} --plugin=protoc-gen-grpc=${GRPC_CPP_PLUGIN})
  endif()
  file(GLOB_RECURSE imports CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/dataplane/*.proto)
  add_custom_command(OUTPUT ${out}.cc ${out}.h
    COMMAND protobuf::protoc ${arguments} -I ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/${file}.proto
    DEPENDS ${imports} VERBATIM)
  set(${result} ${${result}} ${out}.cc ${out}.h PARENT_SCOPE)
endfunction()

# sarsen_proto_library(NAME SOURCES...)
function(sarsen_proto_library name)
  add_library(${name} STATIC ${ARGN})
  target_compile_options(${name} PRIVATE -w -O1 -g0)
  target_include_directories(${name} SYSTEM PUBLIC ${SARSEN_GENERATED})
  target_link_libraries(${name} PUBLIC protobuf::libprotobuf)
endfunction()
