# SPDX-License-Identifier: MIT
# A file as a C array: cmake -DINPUT=FILE -DOUTPUT=FILE.c -DNAME=symbol -P embed.cmake
# The source defines `NAME`, a 0 byte behind the last one, and `NAME_size`.
file(READ ${INPUT} bytes HEX)
string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}") # 16 bytes a line
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUTPUT}
     "#include <stddef.h>\n"
     "extern const unsigned char ${NAME}[];\nextern const size_t ${NAME}_size;\n"
     "const unsigned char ${NAME}[] = {\n${bytes}0};\n"
     "const size_t ${NAME}_size = sizeof ${NAME} - 1;\n")
