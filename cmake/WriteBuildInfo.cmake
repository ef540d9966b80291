# Run at build time: writes OUTPUT from TEMPLATE with the commit that is checked out, and touches it only when
# that changed, so an unchanged tree rebuilds nothing.
execute_process(COMMAND git -C ${SOURCE_DIR} rev-parse --short=12 HEAD
  OUTPUT_VARIABLE REDLINE_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE result ERROR_QUIET)
if(NOT result EQUAL 0)
  set(REDLINE_COMMIT "unknown")
else()
  execute_process(COMMAND git -C ${SOURCE_DIR} diff --quiet HEAD -- RESULT_VARIABLE dirty ERROR_QUIET)
  if(NOT dirty EQUAL 0)
    string(APPEND REDLINE_COMMIT "+changes")
  endif()
endif()
configure_file(${TEMPLATE} ${OUTPUT} @ONLY)
