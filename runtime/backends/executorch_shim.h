/* What pixdraft needs of ExecuTorch, as plain C: one program, its methods, inputs and outputs as pointers.
 *
 * A program and its methods belong to one thread at a time. Functions that fail say so in their result, and
 * `pixdraft_error` says why.
 */
#ifndef PIXDRAFT_EXECUTORCH_SHIM_H
#define PIXDRAFT_EXECUTORCH_SHIM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pixdraft_program pixdraft_program;

/* Opens a .pte file. `threads` is what its methods may compute with. `pooled` holds weights that several methods name
 * once; where one method names the same weight for unlike layers, it gains nothing and complains.
 * `timed` keeps the time of operators, for `pixdraft_seconds`; without it nothing is measured. NULL on failure. */
pixdraft_program* pixdraft_open(const char* path, int threads, int pooled, int timed);

void pixdraft_close(pixdraft_program* program);

/* Loads a method and returns its number; -1 on failure. Methods of a program share state and scratch memory. */
int pixdraft_method(pixdraft_program* program, const char* name);

/* Points an input of a method at memory, which is read by every `pixdraft_execute` until it is bound anew.
 * Its type is the one the method was exported with. 0, or -1 on failure. */
int pixdraft_bind(
    pixdraft_program* program, int method, int input, void* data, const int32_t* sizes, int rank);

/* Runs a method. 0, or -1 on failure. */
int pixdraft_execute(pixdraft_program* program, int method);

/* Where an output of the last run lies, and how many elements it has; -1 on failure.
 * The place stays the same from run to run; the next run of any method writes over what is there. */
int64_t pixdraft_output(pixdraft_program* program, int method, int output, const void** data);

/* Median seconds that a run of the program's methods spent in one of its operators, and that one's name, which lasts
 * until the next run: DELEGATE_CALL for all that the delegate took over, native_call_OPERATOR for what it left, and
 * OPERATOR_CALL for what has no name. `place` counts from 0; -1 past the last, or if the program is not timed. */
double pixdraft_seconds(pixdraft_program* program, int place, const char** name);

/* Forgets the time of all runs so far. */
void pixdraft_clear(pixdraft_program* program);

/* Why the last call of this thread failed. */
const char* pixdraft_error(void);

#ifdef __cplusplus
}
#endif

#endif
