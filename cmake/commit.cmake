# Writes the checkout's commit into FILE if it has changed. Runs at each build, so that results name the
# commit that was built, and not the one that was configured.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${FILE} CONTENT "#pragma once\n#define MILLRACE_COMMIT \"${commit}\"\n")
