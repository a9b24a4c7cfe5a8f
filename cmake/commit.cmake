# Writes the checkout's commit into FILE when it has changed. Run at each build, so that results name
# what was built and not what was configured.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${FILE} CONTENT "#pragma once\n#define MILLRACE_COMMIT \"${commit}\"\n")
