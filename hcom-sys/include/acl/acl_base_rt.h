/*
 * ACL: types shared by all parts, result codes, logging, data buffers.
 *
 * @library libacl_rt.so
 * @since 8.0 unless a function says otherwise
 */
#ifndef HCOM_ACL_ACL_BASE_RT_H
#define HCOM_ACL_ACL_BASE_RT_H

#include <stddef.h>
#include <stdint.h>
#include "error_codes/rt_error_codes.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Result code: 0 is success. */
typedef int aclError;
/** Bits of an IEEE 754 half. */
typedef uint16_t aclFloat16;

/** A queue of device work. */
typedef void *aclrtStream;
/** A mark in a stream. */
typedef void *aclrtEvent;
/** What a thread works in: a device and its default stream. */
typedef void *aclrtContext;
/** A one-shot signal. */
typedef void *aclrtNotify;
/** A jump target in a stream. */
typedef void *aclrtLabel;
/** Several labels. */
typedef void *aclrtLabelList;
/** A loaded kernel binary. */
typedef void *aclrtBinHandle;
/** A kernel. */
typedef void *aclrtFuncHandle;
/** Arguments of a kernel. */
typedef void *aclrtArgsHandle;
/** One argument of a kernel. */
typedef void *aclrtParamHandle;
/** Physical memory. */
typedef void *aclrtDrvMemHandle;
/** A captured or built graph. */
typedef void *aclmdlRI;
/** A task of a graph. */
typedef void *aclmdlRITask;
/** A condition of a graph. */
typedef void *aclmdlRICondHandle;
/** A group of captured tasks. */
typedef void *aclrtTaskGrp;

/** A device address with a length. */
typedef struct aclDataBuffer aclDataBuffer;

/** Element types of ACL and aclnn. Not the numbers of HcclDataType. */
typedef enum aclDataType {
    ACL_DT_UNDEFINED = -1,
    ACL_FLOAT = 0,
    ACL_FLOAT16 = 1,
    ACL_INT8 = 2,
    ACL_INT32 = 3,
    ACL_UINT8 = 4,
    ACL_INT16 = 6,
    ACL_UINT16 = 7,
    ACL_UINT32 = 8,
    ACL_INT64 = 9,
    ACL_UINT64 = 10,
    ACL_DOUBLE = 11,
    ACL_BOOL = 12,
    ACL_STRING = 13,
    ACL_COMPLEX64 = 16,
    ACL_COMPLEX128 = 17,
    ACL_BF16 = 27,
    ACL_INT4 = 29,
    ACL_UINT1 = 30,
    ACL_COMPLEX32 = 33,
    ACL_HIFLOAT8 = 34,
    ACL_FLOAT8_E5M2 = 35,
    ACL_FLOAT8_E4M3FN = 36,
    ACL_FLOAT8_E8M0 = 37,
    ACL_FLOAT6_E3M2 = 38,
    ACL_FLOAT6_E2M3 = 39,
    ACL_FLOAT4_E2M1 = 40,
    ACL_FLOAT4_E1M2 = 41,
} aclDataType;

/** Layouts of tensors in storage; hcom uses ACL_FORMAT_ND, plain row-major. */
typedef enum aclFormat {
    ACL_FORMAT_UNDEFINED = -1,
    ACL_FORMAT_NCHW = 0,
    ACL_FORMAT_NHWC = 1,
    ACL_FORMAT_ND = 2,
    ACL_FORMAT_NC1HWC0 = 3,
    ACL_FORMAT_FRACTAL_Z = 4,
    ACL_FORMAT_NC1HWC0_C04 = 12,
    ACL_FORMAT_HWCN = 16,
    ACL_FORMAT_NDHWC = 27,
    ACL_FORMAT_FRACTAL_NZ = 29,
    ACL_FORMAT_NCDHW = 30,
    ACL_FORMAT_NDC1HWC0 = 32,
    ACL_FRACTAL_Z_3D = 33,
    ACL_FORMAT_NC = 35,
    ACL_FORMAT_NCL = 47,
    ACL_FORMAT_FRACTAL_NZ_C0_16 = 50,
    ACL_FORMAT_FRACTAL_NZ_C0_32 = 51,
    ACL_FORMAT_FRACTAL_NZ_C0_2 = 52,
    ACL_FORMAT_FRACTAL_NZ_C0_4 = 53,
    ACL_FORMAT_FRACTAL_NZ_C0_8 = 54,
} aclFormat;

/** Where the data of a tensor description lies. */
typedef enum aclMemType {
    ACL_MEMTYPE_DEVICE = 0,
    ACL_MEMTYPE_HOST = 1,
    ACL_MEMTYPE_HOST_COMPILE_INDEPENDENT = 2,
} aclMemType;

/** Levels of aclAppLog. */
typedef enum aclLogLevel {
    ACL_DEBUG = 0,
    ACL_INFO = 1,
    ACL_WARNING = 2,
    ACL_ERROR = 3,
} aclLogLevel;

/** Attributes of an installation. */
typedef enum aclCannAttr {
    ACL_CANN_ATTR_UNDEFINED = -1,
    ACL_CANN_ATTR_INF_NAN = 0,
    ACL_CANN_ATTR_BF16 = 1,
    ACL_CANN_ATTR_JIT_COMPILE = 2,
} aclCannAttr;

/** What aclGetDeviceCapability reports. */
typedef enum aclDeviceInfo {
    ACL_DEVICE_INFO_UNDEFINED = -1,
    ACL_DEVICE_INFO_AI_CORE_NUM = 0,
    ACL_DEVICE_INFO_VECTOR_CORE_NUM = 1,
    ACL_DEVICE_INFO_L2_SIZE = 2,
} aclDeviceInfo;

/** Rank of a tensor whose rank is unknown. */
#define ACL_UNKNOWN_RANK 0xFFFFFFFFFFFFFFFE

/* Result codes of the ACL layer; those of the runtime below it are in rt_error_codes.h. */

#define ACL_SUCCESS                              0
#define ACL_ERROR_NONE                           0
#define ACL_ERROR_INVALID_PARAM                  100000
#define ACL_ERROR_UNINITIALIZE                   100001
#define ACL_ERROR_REPEAT_INITIALIZE              100002
#define ACL_ERROR_INVALID_FILE                   100003
#define ACL_ERROR_WRITE_FILE                     100004
#define ACL_ERROR_INVALID_FILE_SIZE              100005
#define ACL_ERROR_PARSE_FILE                     100006
#define ACL_ERROR_FILE_MISSING_ATTR              100007
#define ACL_ERROR_FILE_ATTR_INVALID              100008
#define ACL_ERROR_INVALID_DUMP_CONFIG            100009
#define ACL_ERROR_INVALID_PROFILING_CONFIG       100010
#define ACL_ERROR_OP_TYPE_NOT_MATCH              100020
#define ACL_ERROR_OP_INPUT_NOT_MATCH             100021
#define ACL_ERROR_OP_OUTPUT_NOT_MATCH            100022
#define ACL_ERROR_OP_ATTR_NOT_MATCH              100023
#define ACL_ERROR_OP_NOT_FOUND                   100024
#define ACL_ERROR_OP_LOAD_FAILED                 100025
#define ACL_ERROR_UNSUPPORTED_DATA_TYPE          100026
#define ACL_ERROR_FORMAT_NOT_MATCH               100027
#define ACL_ERROR_KERNEL_NOT_FOUND               100029
#define ACL_ERROR_REPEAT_SUBSCRIBE               100033
#define ACL_ERROR_STREAM_NOT_SUBSCRIBE           100034
#define ACL_ERROR_THREAD_NOT_SUBSCRIBE           100035
#define ACL_ERROR_WAIT_CALLBACK_TIMEOUT          100036
#define ACL_ERROR_REPEAT_FINALIZE                100037
#define ACL_ERROR_COMPILING_STUB_MODE            100039
#define ACL_ERROR_PROF_ALREADY_RUN               100042
#define ACL_ERROR_PROF_NOT_RUN                   100043
#define ACL_ERROR_DUMP_ALREADY_RUN               100044
#define ACL_ERROR_DUMP_NOT_RUN                   100045
#define ACL_ERROR_PROF_REPEAT_SUBSCRIBE          148046
#define ACL_ERROR_PROF_API_CONFLICT              148047
#define ACL_ERROR_INVALID_MAX_OPQUEUE_NUM_CONFIG 148048
#define ACL_ERROR_INVALID_OPP_PATH               148049
#define ACL_ERROR_OP_UNSUPPORTED_DYNAMIC         148050
#define ACL_ERROR_RELATIVE_RESOURCE_NOT_CLEARED  148051
#define ACL_ERROR_UNSUPPORTED_JPEG               148052
#define ACL_ERROR_INVALID_BUNDLE_MODEL_ID        148053
#define ACL_ERROR_BAD_ALLOC                      200000
#define ACL_ERROR_API_NOT_SUPPORT                200001
#define ACL_ERROR_INVALID_DEVICE                 200002
#define ACL_ERROR_MEMORY_ADDRESS_UNALIGNED       200003
#define ACL_ERROR_RESOURCE_NOT_MATCH             200004
#define ACL_ERROR_INVALID_RESOURCE_HANDLE        200005
#define ACL_ERROR_FEATURE_UNSUPPORTED            200006
#define ACL_ERROR_PROF_MODULES_UNSUPPORTED       200007
#define ACL_ERROR_STORAGE_OVER_LIMIT             300000
#define ACL_ERROR_INTERNAL_ERROR                 500000
#define ACL_ERROR_FAILURE                        500001
#define ACL_ERROR_GE_FAILURE                     500002
#define ACL_ERROR_RT_FAILURE                     500003
#define ACL_ERROR_DRV_FAILURE                    500004
#define ACL_ERROR_PROFILING_FAILURE              500005

/* Errors, logging and number formats. */

/** Text of this thread's last error, or NULL. Reading clears it; the pointer is valid until the
 * thread's next call. */
const char *aclGetRecentErrMsg(void);

/** Writes one line to the device log, printf style. */
void aclAppLog(aclLogLevel logLevel, const char *func, const char *file, uint32_t line,
    const char *fmt, ...);

/** Bytes per element; 0 for types without a whole number of bytes. */
size_t aclDataTypeSize(aclDataType dataType);

/** Bits of an IEEE half to float. Infinity and NaN are not kept. */
float aclFloat16ToFloat(aclFloat16 value);

/** Float to the bits of an IEEE half. Infinity and NaN saturate. */
aclFloat16 aclFloatToFloat16(float value);

/** The attributes this installation knows; the array belongs to the library. */
aclError aclGetCannAttributeList(const aclCannAttr **cannAttrList, size_t *num);

/** 1 when the attribute holds for this installation, else 0. */
aclError aclGetCannAttribute(aclCannAttr cannAttr, int32_t *value);

/** AI cores, vector cores or L2 bytes of a device. */
aclError aclGetDeviceCapability(uint32_t deviceId, aclDeviceInfo deviceInfo, int64_t *value);

/* Data buffers: a device address with a length, for offline models and aclop calls. */

/** Describes `size` bytes at `data`; does not own them. */
aclDataBuffer *aclCreateDataBuffer(void *data, size_t size);

/** Frees the description, not the memory. */
aclError aclDestroyDataBuffer(const aclDataBuffer *dataBuffer);

/** Points an existing description at other memory. */
aclError aclUpdateDataBuffer(aclDataBuffer *dataBuffer, void *data, size_t size);

/** Address of the described memory. */
void *aclGetDataBufferAddr(const aclDataBuffer *dataBuffer);

/** Length in bytes, cut to 32 bits. */
uint32_t aclGetDataBufferSize(const aclDataBuffer *dataBuffer);

/** Length in bytes. */
size_t aclGetDataBufferSizeV2(const aclDataBuffer *dataBuffer);

#ifdef __cplusplus
}
#endif

#endif
