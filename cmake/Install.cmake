# What is installed beside the program: its recipes, a manual page and shell completion, both made by the program itself
# from its table of options.
include(GNUInstallDirs)

# Found relative to the program: beside it in a build folder, in share/ where it is installed.
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/recipes ${PROJECT_BINARY_DIR}/recipes SYMBOLIC)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/recipes DESTINATION ${CMAKE_INSTALL_DATADIR}/redline)

set(share ${PROJECT_BINARY_DIR}/share)
file(MAKE_DIRECTORY ${share})
set(made)
foreach(pair "man redline.1" "bash redline" "zsh _redline")
  separate_arguments(pair)
  list(GET pair 0 kind)
  list(GET pair 1 file)
  add_custom_command(OUTPUT ${share}/${file} COMMAND redline completion ${kind} > ${share}/${file} DEPENDS redline
    VERBATIM)
  list(APPEND made ${share}/${file})
endforeach()
add_custom_target(redline_share ALL DEPENDS ${made})
install(FILES ${share}/redline.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${share}/redline DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${share}/_redline DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
