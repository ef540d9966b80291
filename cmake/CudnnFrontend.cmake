# cudnn-frontend, cuDNN's header-only C++ interface: from the system, or else from its PyPI package, whose wheel is
# an archive of headers. Defines the target cudnn_frontend.
set(CUDNN_FRONTEND_VERSION 1.32.0)
set(_folder ${PROJECT_BINARY_DIR}/_deps/cudnn-frontend)
find_path(CUDNN_FRONTEND_INCLUDE cudnn_frontend.h HINTS ${_folder}/include)
if(NOT CUDNN_FRONTEND_INCLUDE)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  execute_process(
    COMMAND ${Python3_EXECUTABLE} -m pip download --quiet --no-deps -d ${_folder}
      nvidia-cudnn-frontend==${CUDNN_FRONTEND_VERSION}
    RESULT_VARIABLE _failed)
  file(GLOB _wheel ${_folder}/*.whl)
  if(_failed OR NOT _wheel)
    message(FATAL_ERROR "The CUDA backend needs the headers of cudnn-frontend: install them, or let "
      "'pip download nvidia-cudnn-frontend==${CUDNN_FRONTEND_VERSION}' work")
  endif()
  file(ARCHIVE_EXTRACT INPUT ${_wheel} DESTINATION ${_folder} PATTERNS "include/*")
  find_path(CUDNN_FRONTEND_INCLUDE cudnn_frontend.h HINTS ${_folder}/include REQUIRED)
endif()
add_library(cudnn_frontend INTERFACE)
target_include_directories(cudnn_frontend SYSTEM INTERFACE ${CUDNN_FRONTEND_INCLUDE})
