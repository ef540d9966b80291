# The bundle: `cpack --config build/<preset>/CPackConfig.cmake` gives one tar that runs from wherever it is unpacked, on
# any x86-64 Linux whose glibc is not older than the build machine's. It brings every library but glibc, the NVIDIA
# driver, and CUDA's and cuDNN's libraries, which the program looks for on the system and in Python environments.
install(RUNTIME_DEPENDENCY_SET redline_libraries
  PRE_EXCLUDE_REGEXES
    "^ld-linux" "^lib(c|m|mvec|dl|rt|pthread|resolv|util|anl|nsl)\\.so" "^linux-vdso"
    "^lib(cuda|cudart|cublas|cublasLt|nvrtc|nvjpeg|nccl|nvidia-.*|cudnn.*|cupti)\\.so"
  LIBRARY DESTINATION lib)
install(FILES LICENSE README.md CHANGELOG.md DESTINATION share/doc/redline)
install(DIRECTORY docs DESTINATION share/doc/redline)
if(REDLINE_BUNDLE_TESTS)
  install(PROGRAMS tests/gpu/redline-gpu-tests DESTINATION bin)
  install(DIRECTORY tests/golden/ DESTINATION share/redline/tests/golden FILES_MATCHING PATTERN "*.json")
  install(DIRECTORY tests/cli/ DESTINATION share/redline/tests/cli FILES_MATCHING PATTERN "gpu_*.test"
    PATTERN "runner" EXCLUDE)
  redline_bundle(cli_runner lib/redline/tests "$ORIGIN/../..")
endif()

set(CPACK_GENERATOR TGZ)
set(CPACK_PACKAGE_NAME redline)
set(CPACK_PACKAGE_FILE_NAME redline-${PROJECT_VERSION}-linux-x86_64)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
include(CPack)
