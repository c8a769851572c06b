/* What models that are written for OpenCL take of its header (OpenCL 1.2, "Platform layer" and
   "Runtime"), for machines that have none. */
#ifndef CL_H
#define CL_H

#include <stddef.h>
#include <stdint.h>

typedef int32_t cl_int;
typedef uint32_t cl_uint;
typedef cl_uint cl_bool, cl_device_info, cl_program_build_info;
typedef uint64_t cl_bitfield;
typedef cl_bitfield cl_device_type, cl_mem_flags, cl_command_queue_properties;
typedef intptr_t cl_context_properties;
typedef struct _cl_platform_id *cl_platform_id;
typedef struct _cl_device_id *cl_device_id;
typedef struct _cl_context *cl_context;
typedef struct _cl_command_queue *cl_command_queue;
typedef struct _cl_mem *cl_mem;
typedef struct _cl_program *cl_program;
typedef struct _cl_kernel *cl_kernel;
typedef struct _cl_event *cl_event;
typedef void (*cl_told)(const char *, const void *, size_t, void *);
typedef void (*cl_built)(cl_program, void *);

enum { CL_SUCCESS = 0, CL_TRUE = 1, CL_MEM_READ_WRITE = 1, CL_DEVICE_TYPE_GPU = 4 };
enum { CL_DEVICE_TYPE = 0x1000, CL_PROGRAM_BUILD_LOG = 0x1183 };
#define CL_DEVICE_TYPE_ALL 0xFFFFFFFFu

cl_int clGetPlatformIDs(cl_uint, cl_platform_id *, cl_uint *);
cl_int clGetDeviceIDs(cl_platform_id, cl_device_type, cl_uint, cl_device_id *, cl_uint *);
cl_int clGetDeviceInfo(cl_device_id, cl_device_info, size_t, void *, size_t *);
cl_context clCreateContext(
    const cl_context_properties *, cl_uint, const cl_device_id *, cl_told, void *, cl_int *);
cl_command_queue clCreateCommandQueue(
    cl_context, cl_device_id, cl_command_queue_properties, cl_int *);
cl_program clCreateProgramWithSource(
    cl_context, cl_uint, const char **, const size_t *, cl_int *);
cl_int clBuildProgram(cl_program, cl_uint, const cl_device_id *, const char *, cl_built, void *);
cl_int clGetProgramBuildInfo(
    cl_program, cl_device_id, cl_program_build_info, size_t, void *, size_t *);
cl_mem clCreateBuffer(cl_context, cl_mem_flags, size_t, void *, cl_int *);
cl_kernel clCreateKernel(cl_program, const char *, cl_int *);
cl_int clSetKernelArg(cl_kernel, cl_uint, size_t, const void *);
cl_int clEnqueueNDRangeKernel(
    cl_command_queue, cl_kernel, cl_uint, const size_t *, const size_t *, const size_t *, cl_uint,
    const cl_event *, cl_event *);
cl_int clEnqueueWriteBuffer(
    cl_command_queue, cl_mem, cl_bool, size_t, size_t, const void *, cl_uint, const cl_event *,
    cl_event *);
cl_int clEnqueueReadBuffer(
    cl_command_queue, cl_mem, cl_bool, size_t, size_t, void *, cl_uint, const cl_event *,
    cl_event *);
cl_int clFlush(cl_command_queue);
cl_int clFinish(cl_command_queue);
cl_int clRetainContext(cl_context);
cl_int clRetainProgram(cl_program);
cl_int clRetainMemObject(cl_mem);
cl_int clReleaseContext(cl_context);
cl_int clReleaseCommandQueue(cl_command_queue);
cl_int clReleaseProgram(cl_program);
cl_int clReleaseMemObject(cl_mem);
cl_int clReleaseKernel(cl_kernel);

#endif
