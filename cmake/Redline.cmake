# The two functions every module and test is declared with, and the options that all targets share.
include(GoogleTest)

# Most of the time that a file takes to compile goes into the headers that it includes. Names in the unnamed namespaces of a
# module's files must differ for this.
option(REDLINE_UNITY "Compile a module's files eight at a time: faster for a whole build, slower after a small change" ON)

# Compile and link options of every target in the project. Warnings are errors here and nowhere else, so that
# system headers stay out of it.
add_library(redline_options INTERFACE)
target_compile_features(redline_options INTERFACE cxx_std_20)
target_compile_options(redline_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic>
  $<$<AND:$<BOOL:${REDLINE_WERROR}>,$<COMPILE_LANGUAGE:CXX>>:-Werror>)
if(NOT REDLINE_UNITY)
  target_compile_options(redline_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wshadow>)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Names of other files are no business of a function's own.
  target_compile_options(redline_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wshadow=local -Wno-subobject-linkage>)
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees overlap in std::string's own operator+ (GCC bug 105651).
  target_compile_options(redline_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 13 takes every reference returned by a temporary's member function for a reference into it.
  target_compile_options(redline_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-dangling-reference>)
endif()

if(REDLINE_SANITIZE)
  set(_sanitize -fsanitize=${REDLINE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  # GCC's flow warnings misfire on instrumented code, so they stay warnings in sanitizer builds.
  target_compile_options(redline_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:${_sanitize}>
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-error=maybe-uninitialized -Wno-error=stringop-overflow
      -Wno-error=array-bounds -Wno-tsan>)
  target_link_options(redline_options INTERFACE -fsanitize=${REDLINE_SANITIZE})
endif()

# redline_library(<module> SOURCES a.cpp ... [PUBLIC_LIBS ...] [PRIVATE_LIBS ...])
# The static library redline_<module>, also known as redline::<module>. Headers are included as
# "<module>/file.h".
function(redline_library module)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "SOURCES;PUBLIC_LIBS;PRIVATE_LIBS")
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "redline_library(${module}): unknown arguments: ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  add_library(redline_${module} STATIC ${ARG_SOURCES})
  add_library(redline::${module} ALIAS redline_${module})
  set_target_properties(redline_${module} PROPERTIES POSITION_INDEPENDENT_CODE ON
    UNITY_BUILD ${REDLINE_UNITY} UNITY_BUILD_BATCH_SIZE 8)
  target_include_directories(redline_${module} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(redline_${module} PUBLIC ${ARG_PUBLIC_LIBS} PRIVATE redline_options ${ARG_PRIVATE_LIBS})
endfunction()

# redline_test(<name> SOURCES ... LIBS ... [LABELS ...] [TIMEOUT seconds] [PROCESSORS n] [UNITY])
# A GoogleTest binary whose cases are ctest tests named <name>.<Suite>.<Case>. Labelled "fast" unless
# "slow", which keeps it out of the default run; "no-sanitizer" keeps it out of the sanitizer runs; "gpu" needs one.
# Each case has PROCESSORS cores to itself: 2 where a backend's threads run, else 1. Without that, every case would
# start a thread for each core of the machine, and many cases at a time would stand in each other's way.
# UNITY: its files may be compiled together, as a module's are (see REDLINE_UNITY).
function(redline_test name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "UNITY" "TIMEOUT;PROCESSORS" "SOURCES;LIBS;LABELS")
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "redline_test(${name}): unknown arguments: ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(NOT ARG_PROCESSORS)
    set(ARG_PROCESSORS 1)
    if(ARG_LIBS MATCHES "redline::(backend|train|bench)")
      set(ARG_PROCESSORS 2)
    endif()
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS fast)
  elseif(NOT "slow" IN_LIST ARG_LABELS AND NOT "fast" IN_LIST ARG_LABELS)
    list(APPEND ARG_LABELS fast)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE redline_options ${ARG_LIBS} GTest::gtest_main)
  # What is tested is built as it is shipped; the tests themselves need not wait for the optimizer.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  if(REDLINE_SANITIZE MATCHES "undefined")
    # A quarter of the time that a test takes to compile; the program's own files are checked for them.
    target_compile_options(${name} PRIVATE -fno-sanitize=alignment,pointer-overflow)
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  if(ARG_UNITY)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ${REDLINE_UNITY} UNITY_BUILD_BATCH_SIZE 8)
  endif()
  gtest_discover_tests(${name} TEST_PREFIX "${name}." TEST_LIST ${name}_TESTS DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT 60 WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} PROPERTIES TIMEOUT ${ARG_TIMEOUT}
    PROCESSORS ${ARG_PROCESSORS} PROCESSOR_AFFINITY ON)
  # gtest_discover_tests loses all but the first element of a list, so the labels are set after it has run.
  set(label_file ${CMAKE_CURRENT_BINARY_DIR}/${name}_labels.cmake)
  file(WRITE ${label_file} "foreach(test IN LISTS ${name}_TESTS)
  set_tests_properties(\${test} PROPERTIES LABELS \"${ARG_LABELS}\")
endforeach()
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${label_file})
endfunction()

# redline_proto(<name>): what protoc makes of proto/<name>.proto, as the library redline_proto_<name>. Its header,
# "<name>.pb.h", is for the module that links it and stays in that module.
function(redline_proto name)
  find_package(Protobuf QUIET CONFIG)  # newer releases, which bring libraries of their own
  if(NOT Protobuf_FOUND)
    find_package(Protobuf REQUIRED)
  endif()
  set(folder ${PROJECT_BINARY_DIR}/proto)
  file(MAKE_DIRECTORY ${folder})
  add_custom_command(OUTPUT ${folder}/${name}.pb.cc ${folder}/${name}.pb.h
    COMMAND protobuf::protoc --cpp_out=${folder} --proto_path=${PROJECT_SOURCE_DIR}/proto ${name}.proto
    DEPENDS ${PROJECT_SOURCE_DIR}/proto/${name}.proto VERBATIM)
  add_library(redline_proto_${name} STATIC ${folder}/${name}.pb.cc ${folder}/${name}.pb.h)
  set_target_properties(redline_proto_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_compile_features(redline_proto_${name} PUBLIC cxx_std_20)
  target_include_directories(redline_proto_${name} SYSTEM PUBLIC ${folder})
  target_link_libraries(redline_proto_${name} PUBLIC protobuf::libprotobuf)
  if(REDLINE_SANITIZE)
    target_compile_options(redline_proto_${name} PRIVATE -fsanitize=${REDLINE_SANITIZE})
  endif()
endfunction()

# redline_gpu_test(<name> SOURCES ... LIBS ...)
# A test that runs on a GPU, labelled "gpu" and compiled with REDLINE_TEST_CUDA; it goes into the bundle, where
# redline-gpu-tests runs it.
function(redline_gpu_test name)
  redline_test(${name} ${ARGN} LABELS gpu TIMEOUT 600)
  target_compile_definitions(${name} PRIVATE REDLINE_TEST_CUDA)
  if(REDLINE_BUNDLE_TESTS)
    redline_bundle(${name} lib/redline/tests "$ORIGIN/../..")
  endif()
endfunction()

# redline_bundle(<target> <folder> <rpath>)
# Installs a program or plugin into a folder of the bundle, and the libraries it needs into lib/. The search path is of
# the kind that holds for the libraries' own libraries too (DT_RPATH).
function(redline_bundle target folder rpath)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "${rpath}")
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
  install(TARGETS ${target} RUNTIME_DEPENDENCY_SET redline_libraries
    RUNTIME DESTINATION ${folder} LIBRARY DESTINATION ${folder})
endfunction()
