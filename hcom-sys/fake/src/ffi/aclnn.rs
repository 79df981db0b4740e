//! The operators: one row per aclnn function, from which both of its phases are made.
#![expect(unsafe_code, reason = "the C interface hands over raw pointers")]
#![allow(non_snake_case, reason = "names are those of the C interface")]

use std::ffi::{CStr, c_char, c_int, c_void};

use hcom_sys::bindings::{
    aclDataType, aclIntArray, aclOpExecutor, aclScalar, aclTensor, aclTensorList, aclnnStatus,
    aclrtStream,
};

use super::guard;
use crate::aclnn::attention::ScoreOptions;
use crate::aclnn::create::End;
use crate::aclnn::executor::{Arg, EXECUTORS, Executor, INNER, NULL_ARGUMENT, Plan, launch};
use crate::aclnn::math::{Binary, Relation, Unary};
use crate::aclnn::mc2::{Options, Quantisation};
use crate::aclnn::norm::Softmax;
use crate::aclnn::object::{INT_ARRAYS, SCALARS, TENSOR_LISTS, TENSORS};
use crate::aclnn::shape::Triangle;
use crate::aclnn::{
    attention, create, elementwise, index, matmul, mc2, norm, object, reduce, rotary, shape, sort,
};
use crate::error::{Failure, Outcome};

/// Hands every operator to the macro `$callback` as rows
/// `second_phase first_phase(parameter: type, …) = plan;`. The first phase takes `workspaceSize: *mut u64` and
/// `executor: *mut *mut aclOpExecutor` behind its parameters; the second is the same for all:
/// `(workspace: *mut c_void, workspaceSize: u64, executor: *mut aclOpExecutor, stream: aclrtStream)`.
#[macro_export]
#[doc(hidden)]
macro_rules! for_each_operator {
    ($callback:ident) => {
        $callback! {
            aclnnNeg aclnnNegGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor)
                = elementwise::unary(Unary::Neg, self_, out);
            aclnnAbs aclnnAbsGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor)
                = elementwise::unary(Unary::Abs, self_, out);
            aclnnExp aclnnExpGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor)
                = elementwise::unary(Unary::Exp, self_, out);
            aclnnLog aclnnLogGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor)
                = elementwise::unary(Unary::Log, self_, out);
            aclnnSqrt aclnnSqrtGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor)
                = elementwise::unary(Unary::Sqrt, self_, out);
            aclnnRsqrt aclnnRsqrtGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor)
                = elementwise::unary(Unary::Rsqrt, self_, out);
            aclnnTanh aclnnTanhGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor)
                = elementwise::unary(Unary::Tanh, self_, out);
            aclnnSigmoid aclnnSigmoidGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor)
                = elementwise::unary(Unary::Sigmoid, self_, out);
            aclnnRelu aclnnReluGetWorkspaceSize(self_: *const aclTensor, out: *const aclTensor)
                = elementwise::unary(Unary::Relu, self_, out);
            aclnnGelu aclnnGeluGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor)
                = elementwise::unary(Unary::Gelu, self_, out);
            aclnnGeluV2 aclnnGeluV2GetWorkspaceSize(x: *const aclTensor, approximate: i64, y: *mut aclTensor)
                = elementwise::gelu_v2(x, approximate, y);
            aclnnSilu aclnnSiluGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor)
                = elementwise::unary(Unary::Silu, self_, out);

            aclnnAdd aclnnAddGetWorkspaceSize(self_: *const aclTensor, other: *const aclTensor, alpha: *const aclScalar, out: *mut aclTensor)
                = elementwise::scaled_binary(Binary::Add, self_, other, alpha, out);
            aclnnSub aclnnSubGetWorkspaceSize(self_: *const aclTensor, other: *const aclTensor, alpha: *const aclScalar, out: *mut aclTensor)
                = elementwise::scaled_binary(Binary::Sub, self_, other, alpha, out);
            aclnnMul aclnnMulGetWorkspaceSize(self_: *const aclTensor, other: *const aclTensor, out: *mut aclTensor)
                = elementwise::binary(Binary::Mul, self_, other, out);
            aclnnDiv aclnnDivGetWorkspaceSize(self_: *const aclTensor, other: *const aclTensor, out: *mut aclTensor)
                = elementwise::binary(Binary::Div, self_, other, out);
            aclnnMaximum aclnnMaximumGetWorkspaceSize(self_: *const aclTensor, other: *const aclTensor, out: *mut aclTensor)
                = elementwise::binary(Binary::Maximum, self_, other, out);
            aclnnMinimum aclnnMinimumGetWorkspaceSize(self_: *const aclTensor, other: *const aclTensor, out: *mut aclTensor)
                = elementwise::binary(Binary::Minimum, self_, other, out);
            aclnnDivMod aclnnDivModGetWorkspaceSize(self_: *const aclTensor, other: *const aclTensor, mode: c_int, out: *mut aclTensor)
                = elementwise::div_mod(self_, other, mode, out);
            aclnnBitwiseAndTensor aclnnBitwiseAndTensorGetWorkspaceSize(self_: *const aclTensor, other: *const aclTensor, out: *mut aclTensor)
                = elementwise::binary(Binary::And, self_, other, out);
            aclnnBitwiseOrTensor aclnnBitwiseOrTensorGetWorkspaceSize(self_: *const aclTensor, other: *const aclTensor, out: *mut aclTensor)
                = elementwise::binary(Binary::Or, self_, other, out);
            aclnnBitwiseXorTensor aclnnBitwiseXorTensorGetWorkspaceSize(self_: *const aclTensor, other: *const aclTensor, out: *mut aclTensor)
                = elementwise::binary(Binary::Xor, self_, other, out);
            aclnnPowTensorTensor aclnnPowTensorTensorGetWorkspaceSize(self_: *const aclTensor, exponent: *const aclTensor, out: *mut aclTensor)
                = elementwise::binary(Binary::Pow, self_, exponent, out);
            aclnnAdds aclnnAddsGetWorkspaceSize(self_: *const aclTensor, other: *const aclScalar, alpha: *const aclScalar, out: *mut aclTensor)
                = elementwise::adds(self_, other, alpha, out);
            aclnnMuls aclnnMulsGetWorkspaceSize(self_: *const aclTensor, other: *const aclScalar, out: *mut aclTensor)
                = elementwise::muls(self_, other, out);
            aclnnEqTensor aclnnEqTensorGetWorkspaceSize(self_: *const aclTensor, other: *const aclTensor, out: *mut aclTensor)
                = elementwise::compare(Relation::Equal, self_, other, out);
            aclnnLtTensor aclnnLtTensorGetWorkspaceSize(self_: *const aclTensor, other: *const aclTensor, out: *mut aclTensor)
                = elementwise::compare(Relation::Less, self_, other, out);
            aclnnGtTensor aclnnGtTensorGetWorkspaceSize(self_: *const aclTensor, other: *const aclTensor, out: *mut aclTensor)
                = elementwise::compare(Relation::Greater, self_, other, out);
            aclnnSWhere aclnnSWhereGetWorkspaceSize(condition: *const aclTensor, self_: *const aclTensor, other: *const aclTensor, out: *mut aclTensor)
                = elementwise::select(condition, self_, other, out);

            aclnnMatmul aclnnMatmulGetWorkspaceSize(self_: *const aclTensor, mat2: *const aclTensor, out: *mut aclTensor, cubeMathType: i8)
                = matmul::matmul(self_, mat2, out, cubeMathType);
            aclnnBatchMatMul aclnnBatchMatMulGetWorkspaceSize(self_: *const aclTensor, mat2: *const aclTensor, out: *mut aclTensor, cubeMathType: i8)
                = matmul::batch_matmul(self_, mat2, out, cubeMathType);

            aclnnSoftmax aclnnSoftmaxGetWorkspaceSize(self_: *const aclTensor, dim: i64, out: *mut aclTensor)
                = norm::softmax(Softmax::Share, self_, dim, out);
            aclnnLayerNorm aclnnLayerNormGetWorkspaceSize(input: *const aclTensor, normalizedShape: *const aclIntArray, weightOptional: *const aclTensor, biasOptional: *const aclTensor, eps: f64, out: *mut aclTensor, meanOutOptional: *mut aclTensor, rstdOutOptional: *mut aclTensor)
                = norm::layer_norm(input, normalizedShape, weightOptional, biasOptional, eps, out, meanOutOptional, rstdOutOptional);
            aclnnRmsNorm aclnnRmsNormGetWorkspaceSize(x: *const aclTensor, gamma: *const aclTensor, epsilon: f64, yOut: *const aclTensor, rstdOut: *const aclTensor)
                = norm::rms_norm(x, gamma, epsilon, yOut, rstdOut);

            aclnnReduceSum aclnnReduceSumGetWorkspaceSize(self_: *const aclTensor, dims: *const aclIntArray, keepDims: bool, dtype: aclDataType, out: *mut aclTensor)
                = reduce::sum(self_, dims, keepDims, dtype, out);
            aclnnMean aclnnMeanGetWorkspaceSize(self_: *const aclTensor, dim: *const aclIntArray, keepDim: bool, dtype: aclDataType, out: *mut aclTensor)
                = reduce::mean(self_, dim, keepDim, dtype, out);
            aclnnAmax aclnnAmaxGetWorkspaceSize(self_: *const aclTensor, dim: *const aclIntArray, keepDim: bool, out: *mut aclTensor)
                = reduce::amax(self_, dim, keepDim, out);
            aclnnArgMax aclnnArgMaxGetWorkspaceSize(self_: *const aclTensor, dim: i64, keepdim: bool, out: *mut aclTensor)
                = reduce::argmax(self_, dim, keepdim, out);

            aclnnEmbedding aclnnEmbeddingGetWorkspaceSize(weight: *const aclTensor, indices: *const aclTensor, out: *const aclTensor)
                = index::embedding(weight, indices, out);
            aclnnGather aclnnGatherGetWorkspaceSize(self_: *const aclTensor, dim: i64, index: *const aclTensor, out: *mut aclTensor)
                = index::gather(self_, dim, index, out);

            aclnnPermute aclnnPermuteGetWorkspaceSize(self_: *const aclTensor, dims: *const aclIntArray, out: *mut aclTensor)
                = shape::permute(self_, dims, out);
            aclnnExpand aclnnExpandGetWorkspaceSize(self_: *const aclTensor, size: *const aclIntArray, out: *mut aclTensor)
                = shape::expand(self_, size, out);
            aclnnSliceV2 aclnnSliceV2GetWorkspaceSize(self_: *const aclTensor, starts: *const aclIntArray, ends: *const aclIntArray, axes: *const aclIntArray, steps: *const aclIntArray, out: *mut aclTensor)
                = shape::slice_v2(self_, starts, ends, axes, steps, out);
            aclnnCat aclnnCatGetWorkspaceSize(tensors: *const aclTensorList, dim: i64, out: *mut aclTensor)
                = shape::cat(tensors, dim, out);
            aclnnConstantPadNd aclnnConstantPadNdGetWorkspaceSize(self_: *const aclTensor, pad: *const aclIntArray, value: *const aclScalar, out: *mut aclTensor)
                = shape::constant_pad(self_, pad, value, out);
            aclnnTril aclnnTrilGetWorkspaceSize(self_: *const aclTensor, diagonal: i64, out: *mut aclTensor)
                = shape::triangle(Triangle::Lower, self_, diagonal, out);
            aclnnTriu aclnnTriuGetWorkspaceSize(self_: *const aclTensor, diagonal: i64, out: *mut aclTensor)
                = shape::triangle(Triangle::Upper, self_, diagonal, out);

            aclnnSin aclnnSinGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor)
                = elementwise::unary(Unary::Sin, self_, out);
            aclnnCos aclnnCosGetWorkspaceSize(input: *const aclTensor, out: *mut aclTensor)
                = elementwise::unary(Unary::Cos, input, out);
            aclnnReciprocal aclnnReciprocalGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor)
                = elementwise::unary(Unary::Reciprocal, self_, out);
            aclnnInplaceAdd aclnnInplaceAddGetWorkspaceSize(selfRef: *const aclTensor, other: *const aclTensor, alpha: *const aclScalar)
                = elementwise::inplace_add(selfRef, other, alpha);
            aclnnInplaceAdds aclnnInplaceAddsGetWorkspaceSize(selfRef: *const aclTensor, other: *const aclScalar, alpha: *const aclScalar)
                = elementwise::inplace_adds(selfRef, other, alpha);
            aclnnInplaceMul aclnnInplaceMulGetWorkspaceSize(selfRef: *mut aclTensor, other: *const aclTensor)
                = elementwise::inplace_mul(selfRef, other);
            aclnnInplaceMuls aclnnInplaceMulsGetWorkspaceSize(selfRef: *mut aclTensor, other: *const aclScalar)
                = elementwise::muls(selfRef.again(), other, selfRef);
            aclnnSubs aclnnSubsGetWorkspaceSize(self_: *const aclTensor, other: *const aclScalar, alpha: *const aclScalar, out: *mut aclTensor)
                = elementwise::subs(self_, other, alpha, out);
            aclnnDivs aclnnDivsGetWorkspaceSize(self_: *const aclTensor, other: *const aclScalar, out: *mut aclTensor)
                = elementwise::by_scalar(Binary::Div, self_, other, out);
            aclnnPowTensorScalar aclnnPowTensorScalarGetWorkspaceSize(self_: *const aclTensor, exponent: *const aclScalar, out: *const aclTensor)
                = elementwise::by_scalar(Binary::Pow, self_, exponent, out);
            aclnnClampMin aclnnClampMinGetWorkspaceSize(self_: *const aclTensor, clipValueMin: *const aclScalar, out: *mut aclTensor)
                = elementwise::by_scalar(Binary::Maximum, self_, clipValueMin, out);
            aclnnEqScalar aclnnEqScalarGetWorkspaceSize(self_: *const aclTensor, other: *const aclScalar, out: *mut aclTensor)
                = elementwise::compare_scalar(Relation::Equal, self_, other, out);
            aclnnNeScalar aclnnNeScalarGetWorkspaceSize(self_: *const aclTensor, other: *const aclScalar, out: *mut aclTensor)
                = elementwise::compare_scalar(Relation::NotEqual, self_, other, out);
            aclnnGtScalar aclnnGtScalarGetWorkspaceSize(self_: *const aclTensor, other: *const aclScalar, out: *mut aclTensor)
                = elementwise::compare_scalar(Relation::Greater, self_, other, out);
            aclnnLtScalar aclnnLtScalarGetWorkspaceSize(self_: *const aclTensor, other: *const aclScalar, out: *mut aclTensor)
                = elementwise::compare_scalar(Relation::Less, self_, other, out);
            aclnnGeScalar aclnnGeScalarGetWorkspaceSize(self_: *const aclTensor, other: *const aclScalar, out: *mut aclTensor)
                = elementwise::compare_scalar(Relation::GreaterOrEqual, self_, other, out);
            aclnnMm aclnnMmGetWorkspaceSize(self_: *const aclTensor, mat2: *const aclTensor, out: *mut aclTensor, cubeMathType: i8)
                = matmul::mm(self_, mat2, out, cubeMathType);
            aclnnInplaceZero aclnnInplaceZeroGetWorkspaceSize(selfRef: *mut aclTensor)
                = create::inplace_number(selfRef, 0);
            aclnnInplaceOne aclnnInplaceOneGetWorkspaceSize(selfRef: *const aclTensor)
                = create::inplace_number(selfRef, 1);
            aclnnSlice aclnnSliceGetWorkspaceSize(self_: *const aclTensor, dim: i64, start: i64, end: i64, step: i64, out: *mut aclTensor)
                = shape::slice(self_, dim, start, end, step, out);

            aclnnCast aclnnCastGetWorkspaceSize(self_: *const aclTensor, dtype: aclDataType, out: *mut aclTensor)
                = create::cast(self_, dtype, out);
            aclnnInplaceCopy aclnnInplaceCopyGetWorkspaceSize(selfRef: *mut aclTensor, src: *const aclTensor)
                = create::inplace_copy(selfRef, src);
            aclnnInplaceFillScalar aclnnInplaceFillScalarGetWorkspaceSize(selfRef: *mut aclTensor, value: *const aclScalar)
                = create::inplace_fill(selfRef, value);
            aclnnArange aclnnArangeGetWorkspaceSize(start: *const aclScalar, end: *const aclScalar, step: *const aclScalar, out: *mut aclTensor)
                = create::arange(End::Excluded, start, end, step, out);

            aclnnSwiGlu aclnnSwiGluGetWorkspaceSize(x: *const aclTensor, dim: i64, out: *const aclTensor)
                = elementwise::swiglu(x, dim, out);
            aclnnAddRmsNorm aclnnAddRmsNormGetWorkspaceSize(x1: *const aclTensor, x2: *const aclTensor, gamma: *const aclTensor, epsilon: f64, yOut: *mut aclTensor, rstdOut: *mut aclTensor, xOut: *mut aclTensor)
                = norm::add_rms_norm(x1, x2, gamma, epsilon, yOut, rstdOut, xOut);
            aclnnLogSoftmax aclnnLogSoftmaxGetWorkspaceSize(self_: *const aclTensor, dim: i64, out: *mut aclTensor)
                = norm::softmax(Softmax::Logarithm, self_, dim, out);
            aclnnLayerNormWithImplMode aclnnLayerNormWithImplModeGetWorkspaceSize(input: *const aclTensor, normalizedShape: *const aclIntArray, weightOptional: *const aclTensor, biasOptional: *const aclTensor, eps: f64, out: *mut aclTensor, meanOutOptional: *mut aclTensor, rstdOutOptional: *mut aclTensor, implMode: i32)
                = norm::layer_norm_with_mode(input, normalizedShape, weightOptional, biasOptional, eps, out, meanOutOptional, rstdOutOptional, implMode);
            aclnnAddmm aclnnAddmmGetWorkspaceSize(self_: *const aclTensor, mat1: *const aclTensor, mat2: *const aclTensor, beta: *const aclScalar, alpha: *const aclScalar, out: *mut aclTensor, cubeMathType: i8)
                = matmul::addmm(self_, mat1, mat2, [beta, alpha], out, cubeMathType);
            aclnnBaddbmm aclnnBaddbmmGetWorkspaceSize(self_: *const aclTensor, batch1: *const aclTensor, batch2: *const aclTensor, beta: *const aclScalar, alpha: *const aclScalar, out: *mut aclTensor, cubeMathType: i8)
                = matmul::baddbmm(self_, batch1, batch2, [beta, alpha], out, cubeMathType);
            aclnnStack aclnnStackGetWorkspaceSize(tensors: *const aclTensorList, dim: i64, out: *mut aclTensor)
                = shape::stack(tensors, dim, out);
            aclnnSplitTensor aclnnSplitTensorGetWorkspaceSize(self_: *const aclTensor, splitSections: u64, dim: i64, out: *mut aclTensorList)
                = shape::split_tensor(self_, splitSections, dim, out);
            aclnnSplitWithSize aclnnSplitWithSizeGetWorkspaceSize(self_: *const aclTensor, splitSize: *const aclIntArray, dim: i64, out: *mut aclTensorList)
                = shape::split_with_size(self_, splitSize, dim, out);
            aclnnFlatten aclnnFlattenGetWorkspaceSize(self_: *const aclTensor, axis: i64, out: *mut aclTensor)
                = shape::flatten(self_, axis, out);
            aclnnRepeat aclnnRepeatGetWorkspaceSize(self_: *const aclTensor, repeats: *const aclIntArray, out: *mut aclTensor)
                = shape::repeat(self_, repeats, out);
            aclnnGatherV2 aclnnGatherV2GetWorkspaceSize(self_: *const aclTensor, dim: i64, index: *const aclTensor, out: *mut aclTensor)
                = index::gather_v2(self_, dim, index, out);
            aclnnIndexSelect aclnnIndexSelectGetWorkspaceSize(self_: *const aclTensor, dim: i64, index: *const aclTensor, out: *mut aclTensor)
                = index::index_select(self_, dim, index, out);
            aclnnIndex aclnnIndexGetWorkspaceSize(self_: *const aclTensor, indices: *const aclTensorList, out: *mut aclTensor)
                = index::index(self_, indices, out);
            aclnnMaskedSelect aclnnMaskedSelectGetWorkspaceSize(self_: *const aclTensor, mask: *const aclTensor, out: *mut aclTensor)
                = index::masked_select(self_, mask, out);
            aclnnTopk aclnnTopkGetWorkspaceSize(self_: *const aclTensor, k: i64, dim: i64, largest: bool, sorted: bool, valuesOut: *mut aclTensor, indicesOut: *mut aclTensor)
                = sort::topk(self_, k, dim, largest, sorted, valuesOut, indicesOut);
            aclnnSort aclnnSortGetWorkspaceSize(self_: *const aclTensor, stable: bool, dim: i64, descending: bool, valuesOut: *mut aclTensor, indicesOut: *mut aclTensor)
                = sort::sort(self_, stable, dim, descending, valuesOut, indicesOut);
            aclnnMax aclnnMaxGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor)
                = reduce::max(self_, out);
            aclnnCumsum aclnnCumsumGetWorkspaceSize(self_: *const aclTensor, dim: i64, dtype: aclDataType, out: *mut aclTensor)
                = reduce::cumsum(self_, dim, dtype, out);
            aclnnEqual aclnnEqualGetWorkspaceSize(self_: *const aclTensor, other: *const aclTensor, out: *mut aclTensor)
                = elementwise::equal(self_, other, out);
            aclnnIsFinite aclnnIsFiniteGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor)
                = elementwise::is_finite(self_, out);
            aclnnLogicalNot aclnnLogicalNotGetWorkspaceSize(self_: *const aclTensor, out: *mut aclTensor)
                = elementwise::logical_not(self_, out);
            aclnnBitwiseAndScalar aclnnBitwiseAndScalarGetWorkspaceSize(self_: *const aclTensor, other: *const aclScalar, out: *mut aclTensor)
                = elementwise::bitwise_and_scalar(self_, other, out);
            aclnnInplaceMaskedFillScalar aclnnInplaceMaskedFillScalarGetWorkspaceSize(selfRef: *mut aclTensor, mask: *const aclTensor, value: *const aclScalar)
                = elementwise::inplace_masked_fill(selfRef, mask, value);
            aclnnInplaceFillTensor aclnnInplaceFillTensorGetWorkspaceSize(selfRef: *mut aclTensor, value: *const aclTensor)
                = create::inplace_fill_tensor(selfRef, value);
            aclnnInplaceNormal aclnnInplaceNormalGetWorkspaceSize(selfRef: *const aclTensor, mean: f32, std: f32, seed: i64, offset: i64)
                = create::inplace_normal(selfRef, mean, std, seed, offset);
            aclnnInplaceUniform aclnnInplaceUniformGetWorkspaceSize(selfRef: *const aclTensor, from: f64, to: f64, seed: u64, offset: u64)
                = create::inplace_uniform(selfRef, from, to, seed, offset);
            aclnnRange aclnnRangeGetWorkspaceSize(start: *const aclScalar, end: *const aclScalar, step: *const aclScalar, out: *mut aclTensor)
                = create::arange(End::Included, start, end, step, out);

            aclnnRotaryPositionEmbedding aclnnRotaryPositionEmbeddingGetWorkspaceSize(x: *const aclTensor, cos: *const aclTensor, sin: *const aclTensor, mode: i64, out: *mut aclTensor)
                = rotary::rotary(x, cos, sin, mode, out);
            aclnnApplyRotaryPosEmb aclnnApplyRotaryPosEmbGetWorkspaceSize(queryRef: *mut aclTensor, keyRef: *mut aclTensor, cos: *const aclTensor, sin: *const aclTensor, layout: i64)
                = rotary::apply(queryRef, keyRef, cos, sin, layout);
            aclnnApplyRotaryPosEmbV2 aclnnApplyRotaryPosEmbV2GetWorkspaceSize(queryRef: *mut aclTensor, keyRef: *mut aclTensor, cos: *const aclTensor, sin: *const aclTensor, layout: i64, rotaryMode: *mut c_char)
                = rotary::apply_v2(queryRef, keyRef, cos, sin, layout, rotaryMode);
            aclnnPromptFlashAttention aclnnPromptFlashAttentionGetWorkspaceSize(query: *const aclTensor, key: *const aclTensor, value: *const aclTensor, pseShift: *const aclTensor, attenMask: *const aclTensor, actualSeqLengths: *const aclIntArray, numHeads: i64, scaleValue: f64, preTokens: i64, nextTokens: i64, inputLayout: *mut c_char, numKeyValueHeads: i64, attentionOut: *const aclTensor)
                = attention::prompt(query, key, value, pseShift, attenMask, actualSeqLengths, numHeads, scaleValue, [preTokens, nextTokens], inputLayout, numKeyValueHeads, attentionOut);
            aclnnIncreFlashAttention aclnnIncreFlashAttentionGetWorkspaceSize(query: *const aclTensor, key: *const aclTensorList, value: *const aclTensorList, pseShift: *const aclTensor, attenMask: *const aclTensor, actualSeqLengths: *const aclIntArray, numHeads: i64, scaleValue: f64, inputLayout: *mut c_char, numKeyValueHeads: i64, attentionOut: *const aclTensor)
                = attention::incremental(query, key, value, pseShift, attenMask, actualSeqLengths, numHeads, scaleValue, inputLayout, numKeyValueHeads, attentionOut);
            aclnnFlashAttentionScore aclnnFlashAttentionScoreGetWorkspaceSize(query: *const aclTensor, key: *const aclTensor, value: *const aclTensor, realShiftOptional: *const aclTensor, dropMaskOptional: *const aclTensor, paddingMaskOptional: *const aclTensor, attenMaskOptional: *const aclTensor, prefixOptional: *const aclIntArray, scaleValue: f64, keepProb: f64, preTokens: i64, nextTokens: i64, headNum: i64, inputLayout: *mut c_char, innerPrecise: i64, sparseMode: i64, softmaxMaxOut: *const aclTensor, softmaxSumOut: *const aclTensor, softmaxOutOut: *const aclTensor, attentionOutOut: *const aclTensor)
                = attention::score(query, key, value, realShiftOptional, [dropMaskOptional, paddingMaskOptional], attenMaskOptional, prefixOptional, ScoreOptions { scale: scaleValue, keep: keepProb, before: preTokens, after: nextTokens, heads: headNum, layout: inputLayout, sparse_mode: sparseMode, precision: innerPrecise }, [softmaxMaxOut, softmaxSumOut, softmaxOutOut], attentionOutOut);

            aclnnMatmulAllReduce aclnnMatmulAllReduceGetWorkspaceSize(x1: *const aclTensor, x2: *const aclTensor, bias: *const aclTensor, group: *const c_char, reduceOp: *const c_char, commTurn: i64, streamMode: i64, output: *const aclTensor)
                = mc2::all_reduce(x1, x2, bias, None, Options { group, reduce: Some(reduceOp), gather: 0, turn: commTurn, stream_mode: streamMode }, output);
            aclnnMatmulAllReduceV2 aclnnMatmulAllReduceV2GetWorkspaceSize(x1: *const aclTensor, x2: *const aclTensor, bias: *const aclTensor, x3: *const aclTensor, group: *const c_char, reduceOp: *const c_char, commTurn: i64, streamMode: i64, output: *const aclTensor)
                = mc2::all_reduce(x1, x2, bias, Some(x3), Options { group, reduce: Some(reduceOp), gather: 0, turn: commTurn, stream_mode: streamMode }, output);
            aclnnAllGatherMatmul aclnnAllGatherMatmulGetWorkspaceSize(x1: *const aclTensor, x2: *const aclTensor, bias: *const aclTensor, group: *const c_char, gatherIndex: i64, commTurn: i64, streamMode: i64, output: *const aclTensor, gatherOut: *const aclTensor)
                = mc2::all_gather(x1, x2, bias, Quantisation::default(), Options { group, reduce: None, gather: gatherIndex, turn: commTurn, stream_mode: streamMode }, output, gatherOut);
            aclnnMatmulReduceScatter aclnnMatmulReduceScatterGetWorkspaceSize(x1: *const aclTensor, x2: *const aclTensor, bias: *const aclTensor, group: *const c_char, reduceOp: *const c_char, commTurn: i64, streamMode: i64, output: *const aclTensor)
                = mc2::reduce_scatter(x1, x2, bias, Quantisation::default(), Options { group, reduce: Some(reduceOp), gather: 0, turn: commTurn, stream_mode: streamMode }, output);

            aclnnAllGatherMatmulV2 aclnnAllGatherMatmulV2GetWorkspaceSize(x1: *const aclTensor, x2: *const aclTensor, bias: *const aclTensor, x1Scale: *const aclTensor, x2Scale: *const aclTensor, quantScale: *const aclTensor, blockSize: i64, group: *const c_char, gatherIndex: i64, commTurn: i64, streamMode: i64, groupSize: i64, commMode: *const c_char, output: *mut aclTensor, gatherOut: *mut aclTensor, amaxOut: *mut aclTensor)
                = mc2::all_gather(x1, x2, bias, Quantisation::new([x1Scale, x2Scale, quantScale, amaxOut], [blockSize, groupSize], commMode), Options { group, reduce: None, gather: gatherIndex, turn: commTurn, stream_mode: streamMode }, output, gatherOut);
            aclnnMatmulReduceScatterV2 aclnnMatmulReduceScatterV2GetWorkspaceSize(x1: *const aclTensor, x2: *const aclTensor, bias: *const aclTensor, x1Scale: *const aclTensor, x2Scale: *const aclTensor, quantScale: *const aclTensor, blockSize: i64, group: *const c_char, reduceOp: *const c_char, commTurn: i64, streamMode: i64, groupSize: i64, commMode: *const c_char, output: *mut aclTensor, amaxOutOptional: *mut aclTensor)
                = mc2::reduce_scatter(x1, x2, bias, Quantisation::new([x1Scale, x2Scale, quantScale, amaxOutOptional], [blockSize, groupSize], commMode), Options { group, reduce: Some(reduceOp), gather: 0, turn: commTurn, stream_mode: streamMode }, output);
        }
    };
}

/// A C argument as the operators want it.
trait Argument {
    type Value;
    fn take(self, name: &'static str) -> Outcome<Self::Value>;
}

macro_rules! object_argument {
    ($($pointer:ty => $object:ty, $registry:ident;)*) => {$(
        impl Argument for $pointer {
            type Value = Arg<$object>;
            fn take(self, name: &'static str) -> Outcome<Arg<$object>> {
                // `self` is a keyword of Rust, so the rows spell it with an underscore.
                Arg::find(name.trim_end_matches('_'), self.addr(), &$registry)
            }
        }
    )*};
}
object_argument! {
    *const aclTensor => object::Tensor, TENSORS;
    *mut aclTensor => object::Tensor, TENSORS;
    *const aclScalar => object::Scalar, SCALARS;
    *const aclIntArray => Vec<i64>, INT_ARRAYS;
    *const aclTensorList => Vec<usize>, TENSOR_LISTS;
    *mut aclTensorList => Vec<usize>, TENSOR_LISTS;
}

macro_rules! plain_argument {
    ($($ty:ty),*) => {$(
        impl Argument for $ty {
            type Value = $ty;
            fn take(self, _: &'static str) -> Outcome<$ty> {
                Ok(self)
            }
        }
    )*};
}
plain_argument!(i8, i32, i64, u64, f32, f64, bool);

macro_rules! text_argument {
    ($($ty:ty),*) => {$(
        impl Argument for $ty {
            /// `None` for null.
            type Value = Option<String>;
            fn take(self, _: &'static str) -> Outcome<Option<String>> {
                // SAFETY: not null, so the caller of the first phase passes text that ends with a zero.
                let text = (!self.is_null()).then(|| unsafe { CStr::from_ptr(self) });
                Ok(text.map(|text| text.to_string_lossy().into_owned()))
            }
        }
    )*};
}
text_argument!(*const c_char, *mut c_char);

impl Argument for aclDataType {
    type Value = i32;
    fn take(self, _: &'static str) -> Outcome<i32> {
        Ok(self.0)
    }
}

fn prepare(
    name: &'static str,
    outputs: [bool; 2],
    plan: impl FnOnce() -> Outcome<Plan>,
) -> Outcome<[usize; 2]> {
    for (present, parameter) in outputs.into_iter().zip(["workspaceSize", "executor"]) {
        if !present {
            let text =
                format!("parameter {parameter}: expected where to write it, got a null pointer");
            return Err(Failure::new(NULL_ARGUMENT, text));
        }
    }
    let executor = Executor::new(name, plan()?);
    let bytes = executor.workspace_bytes();
    Ok([EXECUTORS.insert(executor), bytes])
}

macro_rules! define {
    ($($name:ident $first:ident($($parameter:ident: $ty:ty),*) = $plan:expr;)*) => {$(
        #[doc = concat!("First phase of [`", stringify!($name), "`]: checks the arguments and prepares an executor.")]
        ///
        /// # Safety
        /// `workspaceSize` and `executor` are null or may be written; text is null or ends with a zero.
        pub unsafe extern "C" fn $first(
            $($parameter: $ty,)*
            workspaceSize: *mut u64,
            executor: *mut *mut aclOpExecutor,
        ) -> aclnnStatus {
            guard(stringify!($first), INNER, || {
                let present = [!workspaceSize.is_null(), !executor.is_null()];
                let [handle, bytes] = prepare(stringify!($name), present, || {
                    $(let $parameter = $parameter.take(stringify!($parameter))?;)*
                    $plan
                })?;
                // SAFETY: neither is null, as `prepare` checked; the caller lets them be written.
                unsafe {
                    workspaceSize.write(bytes as u64);
                    executor.write(std::ptr::without_provenance_mut(handle));
                }
                Ok(())
            })
        }

        #[doc = concat!("Second phase: queues what `", stringify!($first), "` prepared, with the workspace it asked for.")]
        ///
        /// # Safety
        /// None beyond that of the runtime: the memory of the tensors stays allocated until the stream has run this.
        pub unsafe extern "C" fn $name(
            workspace: *mut c_void,
            workspaceSize: u64,
            executor: *mut aclOpExecutor,
            stream: aclrtStream,
        ) -> aclnnStatus {
            guard(stringify!($name), INNER, || {
                launch(stringify!($name), executor.addr(), workspace, workspaceSize, stream)
            })
        }
    )*};
}
for_each_operator!(define);
