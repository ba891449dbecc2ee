# Target check_headers: every header compiles alone.
#
# X.h of an X.cc is proven by the build itself, because X.cc includes it first (hack/check_layers.py); the other headers
# get a generated file that includes nothing else. Objects and not -fsyntax-only, so that ninja and ccache know what is
# done already.
file(GLOB_RECURSE SARSEN_HEADERS CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}
  ${CMAKE_SOURCE_DIR}/dataplane/*.h ${CMAKE_SOURCE_DIR}/tests/*.h)
set(sources)
foreach(header IN LISTS SARSEN_HEADERS)
  string(REGEX REPLACE "\\.h$" ".cc" implementation ${header})
  if(NOT EXISTS ${CMAKE_SOURCE_DIR}/${implementation})
    set(source ${CMAKE_BINARY_DIR}/check_headers/${implementation})
    file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${header}\"\n" @ONLY)
    list(APPEND sources ${source})
  endif()
endforeach()
add_library(check_headers OBJECT EXCLUDE_FROM_ALL ${sources})
target_compile_options(check_headers PRIVATE -O0 -g0)

# Include paths and generated headers of every library in dataplane/.
function(sarsen_libraries_below folder result)
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  get_property(subfolders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  set(found)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    if(type MATCHES "^(STATIC|INTERFACE)_LIBRARY$")
      list(APPEND found ${target})
    endif()
  endforeach()
  foreach(subfolder IN LISTS subfolders)
    sarsen_libraries_below(${subfolder} more)
    list(APPEND found ${more})
  endforeach()
  set(${result} ${found} PARENT_SCOPE)
endfunction()
sarsen_libraries_below(${CMAKE_SOURCE_DIR}/dataplane libraries)
target_link_libraries(check_headers PRIVATE ${libraries})
