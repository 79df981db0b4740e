/*
 * aclnn: tensors, scalars, arrays, executors.
 *
 * @library libnnopbase.so
 */
#ifndef HCOM_ACLNN_ACL_META_H
#define HCOM_ACLNN_ACL_META_H

#include <stdbool.h>
#include "../acl/acl_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Result code: 0 is success. */
typedef int32_t aclnnStatus;

#define ACLNN_SUCCESS                     0
#define ACLNN_ERR_PARAM_NULLPTR           161001
#define ACLNN_ERR_PARAM_INVALID           161002
#define ACLNN_ERR_RUNTIME_ERROR           361001
#define ACLNN_ERR_INNER                   561000
#define ACLNN_ERR_INNER_INFERSHAPE_ERROR  561001
#define ACLNN_ERR_INNER_TILING_ERROR      561002
#define ACLNN_ERR_INNER_FIND_KERNEL_ERROR 561003
#define ACLNN_ERR_INNER_CREATE_EXECUTOR   561101
#define ACLNN_ERR_INNER_NULLPTR           561103

/** A strided view of device memory. */
typedef struct aclTensor aclTensor;
/** One value with its type. */
typedef struct aclScalar aclScalar;
/** Integers. */
typedef struct aclIntArray aclIntArray;
/** Floats. */
typedef struct aclFloatArray aclFloatArray;
/** Booleans. */
typedef struct aclBoolArray aclBoolArray;
/** Tensors. */
typedef struct aclTensorList aclTensorList;
/** Scalars. */
typedef struct aclScalarList aclScalarList;
/** A prepared operator call. */
typedef struct aclOpExecutor aclOpExecutor;

/* Tensors and other arguments. Dimension and stride arrays are copied; strides and offsets are
 * in elements. */

/** A view of device memory. `offset` counts from the start of the storage; `stride` NULL means
 * contiguous. NULL on bad arguments. */
aclTensor *aclCreateTensor(const int64_t *viewDims, uint64_t viewDimsNum, aclDataType dataType,
    const int64_t *stride, int64_t offset, aclFormat format, const int64_t *storageDims,
    uint64_t storageDimsNum, void *tensorData);

/** Frees the description, not the memory; NULL is allowed. */
aclnnStatus aclDestroyTensor(const aclTensor *tensor);

/** Describes other memory with an existing tensor. */
aclnnStatus aclInitTensor(aclTensor *tensor, const int64_t *viewDims, uint64_t viewDimsNum,
    aclDataType dataType, const int64_t *stride, int64_t offset, aclFormat format,
    const int64_t *storageDims, uint64_t storageDimsNum, void *tensorDataAddr);

/** Copies one value of type `dataType`. */
aclScalar *aclCreateScalar(void *value, aclDataType dataType);

/** Frees a scalar; NULL is allowed. */
aclnnStatus aclDestroyScalar(const aclScalar *scalar);

/** Copies `size` integers. */
aclIntArray *aclCreateIntArray(const int64_t *value, uint64_t size);

/** Frees an array; NULL is allowed. */
aclnnStatus aclDestroyIntArray(const aclIntArray *array);

/** Copies `size` floats. */
aclFloatArray *aclCreateFloatArray(const float *value, uint64_t size);

/** Frees an array; NULL is allowed. */
aclnnStatus aclDestroyFloatArray(const aclFloatArray *array);

/** Copies `size` booleans. */
aclBoolArray *aclCreateBoolArray(const bool *value, uint64_t size);

/** Frees an array; NULL is allowed. */
aclnnStatus aclDestroyBoolArray(const aclBoolArray *array);

/** A list that takes over its tensors. */
aclTensorList *aclCreateTensorList(const aclTensor *const *value, uint64_t size);

/** Frees a list and its tensors. */
aclnnStatus aclDestroyTensorList(const aclTensorList *array);

/** A list that takes over its scalars. */
aclScalarList *aclCreateScalarList(const aclScalar *const *value, uint64_t size);

/** Frees a list and its scalars. */
aclnnStatus aclDestroyScalarList(const aclScalarList *array);

/* Reading them. The int64_t arrays come from C++ new[] and belong to the caller. */

/** Extents of the view. */
aclnnStatus aclGetViewShape(const aclTensor *tensor, int64_t **viewDims, uint64_t *viewDimsNum);

/** Strides of the view in elements. */
aclnnStatus aclGetViewStrides(const aclTensor *tensor, int64_t **stridesValue,
    uint64_t *stridesNum);

/** First element of the view. */
aclnnStatus aclGetViewOffset(const aclTensor *tensor, int64_t *offset);

/** Extents of the storage. */
aclnnStatus aclGetStorageShape(const aclTensor *tensor, int64_t **storageDims,
    uint64_t *storageDimsNum);

/** The element type. */
aclnnStatus aclGetDataType(const aclTensor *tensor, aclDataType *dataType);

/** The layout. */
aclnnStatus aclGetFormat(const aclTensor *tensor, aclFormat *format);

/** Device address of the storage. */
aclnnStatus aclGetRawTensorAddr(const aclTensor *tensor, void **addr);

/** Sets it. */
aclnnStatus aclSetRawTensorAddr(aclTensor *tensor, void *addr);

/** Number of integers. */
aclnnStatus aclGetIntArraySize(const aclIntArray *array, uint64_t *size);

/** Number of floats. */
aclnnStatus aclGetFloatArraySize(const aclFloatArray *array, uint64_t *size);

/** Number of booleans. */
aclnnStatus aclGetBoolArraySize(const aclBoolArray *array, uint64_t *size);

/** Number of tensors. */
aclnnStatus aclGetTensorListSize(const aclTensorList *tensorList, uint64_t *size);

/** Number of scalars. */
aclnnStatus aclGetScalarListSize(const aclScalarList *scalarList, uint64_t *size);

/** Queues a dump of tensors for debugging. */
aclnnStatus aclDumpOpTensors(const char *opType, const char *opName, aclTensor **tensors,
    size_t inputTensorNum, size_t outputTensorNum, aclrtStream stream);

/* Executors: what NAMEGetWorkspaceSize prepares and NAME consumes. */

/** Keeps the executor after NAME, for further runs; directly after NAMEGetWorkspaceSize. */
aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor *executor);

/** Frees a repeatable executor. */
aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor *executor);

/** Points input `index` at other memory. */
aclnnStatus aclSetInputTensorAddr(aclOpExecutor *executor, const size_t index,
    aclTensor *tensor, void *addr);

/** Points output `index` at other memory. */
aclnnStatus aclSetOutputTensorAddr(aclOpExecutor *executor, const size_t index,
    aclTensor *tensor, void *addr);

/** Points argument `index` at other memory. */
aclnnStatus aclSetTensorAddr(aclOpExecutor *executor, const size_t index, aclTensor *tensor,
    void *addr);

/** Points one tensor of a list input at other memory. */
aclnnStatus aclSetDynamicInputTensorAddr(aclOpExecutor *executor, size_t irIndex,
    const size_t relativeIndex, aclTensorList *tensors, void *addr);

/** Points one tensor of a list output at other memory. */
aclnnStatus aclSetDynamicOutputTensorAddr(aclOpExecutor *executor, size_t irIndex,
    const size_t relativeIndex, aclTensorList *tensors, void *addr);

/** Points one tensor of a list argument at other memory. */
aclnnStatus aclSetDynamicTensorAddr(aclOpExecutor *executor, size_t irIndex,
    const size_t relativeIndex, aclTensorList *tensors, void *addr);

#ifdef __cplusplus
}
#endif

#endif
