# Chart.js, one file that becomes part of the program: from the system's package, or else from npm's, into the build folder.
# Sets REDLINE_CHART_JS to its path.
set(CHART_JS_VERSION 3.9.1)
set(_folder ${PROJECT_BINARY_DIR}/_deps/chart.js)
find_file(REDLINE_CHART_JS NAMES chart.min.js chart.umd.js Chart.min.js
  PATHS /usr/share/javascript/chart.js /usr/share/nodejs/chart.js/dist ${_folder}/package/dist NO_DEFAULT_PATH)
if(NOT REDLINE_CHART_JS)
  find_program(REDLINE_NPM npm)
  if(REDLINE_NPM)
    file(MAKE_DIRECTORY ${_folder})
    execute_process(COMMAND ${REDLINE_NPM} pack --silent chart.js@${CHART_JS_VERSION} WORKING_DIRECTORY ${_folder} OUTPUT_QUIET)
    if(EXISTS ${_folder}/chart.js-${CHART_JS_VERSION}.tgz)
      file(ARCHIVE_EXTRACT INPUT ${_folder}/chart.js-${CHART_JS_VERSION}.tgz DESTINATION ${_folder} PATTERNS "package/dist/chart.min.js")
    endif()
    find_file(REDLINE_CHART_JS NAMES chart.min.js PATHS ${_folder}/package/dist NO_DEFAULT_PATH)
  endif()
endif()
if(NOT REDLINE_CHART_JS)
  message(FATAL_ERROR "Chart.js is not there: install Debian's package libjs-chart.js, or npm and let "
    "'npm pack chart.js@${CHART_JS_VERSION}' work, or name the file with -DREDLINE_CHART_JS=<chart.min.js>")
endif()
