/*
 * Every data operation of HCCL with every element type, and every reduction where there is one, on an A3: values that
 * tell rank and place, all of them checked, and the documented code where the chip has no such combination.
 *
 * One process per rank, started with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
 */
#include "job.h"

/* Elements per rank and call: odd, so that blocks are not aligned. */
#define COUNT 33
#define MOST_RANKS 8

enum family { SIGNED, UNSIGNED, HALF, BRAIN, SINGLE, DOUBLE, OTHER };

struct type {
    HcclDataType id;
    const char *name;
    size_t size;
    enum family family;
};

static const struct type TYPES[] = {
    {HCCL_DATA_TYPE_INT8, "int8", 1, SIGNED},
    {HCCL_DATA_TYPE_INT16, "int16", 2, SIGNED},
    {HCCL_DATA_TYPE_INT32, "int32", 4, SIGNED},
    {HCCL_DATA_TYPE_INT64, "int64", 8, SIGNED},
    {HCCL_DATA_TYPE_UINT8, "uint8", 1, UNSIGNED},
    {HCCL_DATA_TYPE_UINT16, "uint16", 2, UNSIGNED},
    {HCCL_DATA_TYPE_UINT32, "uint32", 4, UNSIGNED},
    {HCCL_DATA_TYPE_UINT64, "uint64", 8, UNSIGNED},
    {HCCL_DATA_TYPE_FP16, "fp16", 2, HALF},
    {HCCL_DATA_TYPE_BFP16, "bfp16", 2, BRAIN},
    {HCCL_DATA_TYPE_FP32, "fp32", 4, SINGLE},
    {HCCL_DATA_TYPE_FP64, "fp64", 8, DOUBLE},
    {HCCL_DATA_TYPE_INT128, "int128", 16, OTHER},
    {HCCL_DATA_TYPE_HIF8, "hif8", 1, OTHER},
    {HCCL_DATA_TYPE_FP8E4M3, "fp8e4m3", 1, OTHER},
    {HCCL_DATA_TYPE_FP8E5M2, "fp8e5m2", 1, OTHER},
    {HCCL_DATA_TYPE_FP8E8M0, "fp8e8m0", 1, OTHER},
};

static const HcclReduceOp REDUCTIONS[] = {HCCL_REDUCE_SUM, HCCL_REDUCE_PROD, HCCL_REDUCE_MAX,
    HCCL_REDUCE_MIN};

struct rank {
    uint32_t rank, ranks;
    HcclComm comm;
    aclrtStream stream;
    void *in, *out;
    char *host;
    size_t bytes;
    uint64_t counts[MOST_RANKS], displs[MOST_RANKS];
    unsigned checked, refused;
};

/* One operation under test. */
struct test {
    const struct rank *me;
    const struct type *type;
    HcclReduceOp op;
    uint32_t root;
};

/* Element i of a rank: small enough that every type holds the exact result. */
static int value(const struct test *test, uint32_t rank, uint64_t i)
{
    const int place = (int)(i % 1000);
    return test->op == HCCL_REDUCE_PROD ? 1 + ((place + (int)rank) & 1) : (place * 3 + (int)rank * 5) % 7;
}

static void put(const struct type *type, char *at, uint64_t i, int value)
{
    char *to = at + i * type->size;
    const float single = (float)value;
    const double twice = value;
    const aclFloat16 half = aclFloatToFloat16(single);
    const int64_t wide = value;
    memset(to, 0, type->size);
    switch (type->family) {
    case HALF: memcpy(to, &half, 2); break;
    case BRAIN: memcpy(to, (const char *)&single + 2, 2); break;
    case SINGLE: memcpy(to, &single, 4); break;
    case DOUBLE: memcpy(to, &twice, 8); break;
    default: memcpy(to, &wide, type->size < 8 ? type->size : 8); break;
    }
}

static void give(const struct test *test, uint64_t count)
{
    const struct rank *me = test->me;
    for (uint64_t i = 0; i < count; i++)
        put(test->type, me->host, i, value(test, me->rank, i));
    CHECK(aclrtMemcpy(me->in, me->bytes, me->host, me->bytes, ACL_MEMCPY_HOST_TO_DEVICE));
    CHECK(aclrtMemset(me->out, me->bytes, 0xee, me->bytes));
}

/* What must be at place i of the result, or -1 where nothing was written. */
typedef int (*Want)(const struct test *, uint64_t i);

static int combined(const struct test *test, uint64_t i)
{
    int result = value(test, 0, i);
    for (uint32_t rank = 1; rank < test->me->ranks; rank++) {
        const int next = value(test, rank, i);
        switch (test->op) {
        case HCCL_REDUCE_SUM: result += next; break;
        case HCCL_REDUCE_PROD: result *= next; break;
        case HCCL_REDUCE_MAX: result = next > result ? next : result; break;
        default: result = next < result ? next : result; break;
        }
    }
    return result;
}

static int own_block(const struct test *test, uint64_t i)
{
    return combined(test, test->me->rank * COUNT + i);
}

static int own_part(const struct test *test, uint64_t i)
{
    return combined(test, test->me->displs[test->me->rank] + i);
}

static int at_root(const struct test *test, uint64_t i)
{
    return test->me->rank == test->root ? combined(test, i) : -1;
}

static int from_root(const struct test *test, uint64_t i)
{
    return value(test, test->root, i);
}

static int block_of_root(const struct test *test, uint64_t i)
{
    return value(test, test->root, test->me->rank * COUNT + i);
}

static int gathered(const struct test *test, uint64_t i)
{
    return value(test, (uint32_t)(i / COUNT), i % COUNT);
}

static int parts_gathered(const struct test *test, uint64_t i)
{
    for (uint32_t rank = 0; rank < test->me->ranks; rank++)
        if (i >= test->me->displs[rank] && i < test->me->displs[rank] + test->me->counts[rank])
            return value(test, rank, i - test->me->displs[rank]);
    return -1;
}

static int exchanged(const struct test *test, uint64_t i)
{
    return value(test, (uint32_t)(i / COUNT), test->me->rank * COUNT + i % COUNT);
}

/* Rank s sends r + 1 elements to rank r, in blocks of COUNT. */
static int unevenly(const struct test *test, uint64_t i)
{
    return i % COUNT < test->me->rank + 1 ? exchanged(test, i) : -1;
}

/* Rank s sends r + 1 elements to rank r, close together on both sides. */
static int closely(const struct test *test, uint64_t i)
{
    const uint64_t mine = test->me->rank + 1;
    return value(test, (uint32_t)(i / mine), test->me->rank * mine / 2 + i % mine);
}

static int from_before(const struct test *test, uint64_t i)
{
    return value(test, (test->me->rank + test->me->ranks - 1) % test->me->ranks, i);
}

static void fail(const struct test *test, const char *what, const char *text)
{
    fprintf(stderr, "rank %u: %s of %s, reduction %d, root %u: %s\n", test->me->rank, what,
        test->type->name, (int)test->op, test->root, text);
    exit(1);
}

/* Judges a call: its code, and where it was taken every element of the result. */
static void judge(struct rank *me, const struct test *test, const char *what, int supported,
    HcclResult code, const void *result, uint64_t count, Want want)
{
    char text[160];
    if (!supported) {
        if (code != HCCL_E_NOT_SUPPORT) {
            snprintf(text, sizeof text, "code %d, not HCCL_E_NOT_SUPPORT", (int)code);
            fail(test, what, text);
        }
        me->refused++;
        return;
    }
    if (code != HCCL_SUCCESS) {
        const char *why = aclGetRecentErrMsg();
        fail(test, what, why ? why : "refused");
    }
    CHECK(aclrtSynchronizeStream(me->stream));
    CHECK(aclrtMemcpy(me->host, me->bytes, result, me->bytes, ACL_MEMCPY_DEVICE_TO_HOST));
    for (uint64_t i = 0; i < count; i++) {
        char expected[16];
        const int wanted = want(test, i);
        const char *got = me->host + i * test->type->size;
        if (wanted == -1)
            memset(expected, 0xee, sizeof expected);
        else
            put(test->type, expected, 0, wanted);
        if (memcmp(got, expected, test->type->size) != 0) {
            snprintf(text, sizeof text, "element %llu is not %d", (unsigned long long)i, wanted);
            fail(test, what, text);
        }
    }
    me->checked++;
}

static int reduces(const struct type *type, HcclReduceOp op)
{
    if (type->family == OTHER || type->family == UNSIGNED || type->family == DOUBLE)
        return 0;
    return op != HCCL_REDUCE_PROD || (type->id != HCCL_DATA_TYPE_INT16 && type->family != BRAIN);
}

static void reductions(struct rank *me, const struct type *type)
{
    const HcclDataType id = type->id;
    for (size_t index = 0; index < sizeof REDUCTIONS / sizeof *REDUCTIONS; index++) {
        struct test test = {me, type, REDUCTIONS[index], 0};
        const int taken = reduces(type, test.op);
        HcclResult code;
        give(&test, COUNT);
        code = HcclAllReduce(me->in, me->out, COUNT, id, test.op, me->comm, me->stream);
        judge(me, &test, "all_reduce", taken, code, me->out, COUNT, combined);
        give(&test, COUNT);
        code = HcclAllReduce(me->in, me->in, COUNT, id, test.op, me->comm, me->stream);
        judge(me, &test, "all_reduce in place", taken, code, me->in, COUNT, combined);
        give(&test, (uint64_t)COUNT * me->ranks);
        code = HcclReduceScatter(me->in, me->out, COUNT, id, test.op, me->comm, me->stream);
        judge(me, &test, "reduce_scatter", taken, code, me->out, COUNT, own_block);
        give(&test, (uint64_t)COUNT * me->ranks);
        code = HcclReduceScatterV(me->in, me->counts, me->displs, me->out, me->counts[me->rank], id,
            test.op, me->comm, me->stream);
        judge(me, &test, "reduce_scatter_v", taken && test.op != HCCL_REDUCE_PROD, code, me->out,
            me->counts[me->rank], own_part);
        for (test.root = 0; test.root < me->ranks; test.root++) {
            give(&test, COUNT);
            code = HcclReduce(me->in, me->out, COUNT, id, test.op, test.root, me->comm, me->stream);
            judge(me, &test, "reduce", taken, code, me->out, COUNT, at_root);
        }
    }
}

static void copies(struct rank *me, const struct type *type)
{
    const HcclDataType id = type->id;
    const int taken = type->family != OTHER;
    const uint64_t all = (uint64_t)COUNT * me->ranks;
    const uint32_t after = (me->rank + 1) % me->ranks, before = (me->rank + me->ranks - 1) % me->ranks;
    struct test test = {me, type, HCCL_REDUCE_SUM, 0};
    uint64_t matrix[MOST_RANKS * MOST_RANKS], send[MOST_RANKS], receive[MOST_RANKS], at[MOST_RANKS];
    HcclResult code;

    give(&test, COUNT);
    code = HcclAllGather(me->in, me->out, COUNT, id, me->comm, me->stream);
    judge(me, &test, "all_gather", taken, code, me->out, all, gathered);
    give(&test, COUNT);
    code = HcclAllGatherV(me->in, me->counts[me->rank], me->out, me->counts, me->displs, id, me->comm,
        me->stream);
    judge(me, &test, "all_gather_v", taken, code, me->out, all, parts_gathered);
    give(&test, all);
    code = HcclAlltoAll(me->in, COUNT, id, me->out, COUNT, id, me->comm, me->stream);
    judge(me, &test, "all_to_all", taken, code, me->out, all, exchanged);
    for (uint32_t rank = 0; rank < me->ranks; rank++) {
        send[rank] = rank + 1;
        receive[rank] = me->rank + 1;
        at[rank] = (uint64_t)rank * COUNT;
        for (uint32_t to = 0; to < me->ranks; to++)
            matrix[rank * me->ranks + to] = to + 1;
    }
    give(&test, all);
    code = HcclAlltoAllV(me->in, send, at, id, me->out, receive, at, id, me->comm, me->stream);
    judge(me, &test, "all_to_all_v", taken, code, me->out, all, unevenly);
    give(&test, all);
    code = HcclAlltoAllVC(me->in, matrix, id, me->out, id, me->comm, me->stream);
    judge(me, &test, "all_to_all_vc", taken, code, me->out, (uint64_t)me->ranks * (me->rank + 1), closely);
    for (test.root = 0; test.root < me->ranks; test.root++) {
        give(&test, COUNT);
        code = HcclBroadcast(me->in, COUNT, id, test.root, me->comm, me->stream);
        judge(me, &test, "broadcast", taken, code, me->in, COUNT, from_root);
        give(&test, all);
        code = HcclScatter(me->in, me->out, COUNT, id, test.root, me->comm, me->stream);
        judge(me, &test, "scatter", taken, code, me->out, COUNT, block_of_root);
    }
    test.root = 0;

    HcclSendRecvItem items[2];
    memset(items, 0, sizeof items);
    items[0].sendRecvType = HCCL_SEND;
    items[0].buf = me->in;
    items[0].remoteRank = after;
    items[1].sendRecvType = HCCL_RECV;
    items[1].buf = me->out;
    items[1].remoteRank = before;
    items[0].count = items[1].count = COUNT;
    items[0].dataType = items[1].dataType = id;
    give(&test, COUNT);
    code = HcclBatchSendRecv(items, 2, me->comm, me->stream);
    judge(me, &test, "batch_send_recv", taken, code, me->out, COUNT, from_before);

    /* Round the ring one after the other: the last rank receives first. */
    give(&test, COUNT);
    HcclResult codes[2] = {HCCL_E_INTERNAL, HCCL_E_INTERNAL};
    for (int step = 0; step < 2; step++) {
        if ((step == 0) == (me->rank != me->ranks - 1))
            codes[0] = HcclSend(me->in, COUNT, id, after, me->comm, me->stream);
        else
            codes[1] = HcclRecv(me->out, COUNT, id, before, me->comm, me->stream);
    }
    judge(me, &test, "send", taken, codes[0], me->out, 0, from_before);
    judge(me, &test, "recv", taken, codes[1], me->out, COUNT, from_before);
}

/* A communicator with a configuration, and what it says of itself. */
static void join(struct rank *me)
{
    HcclRootInfo ticket;
    HcclCommConfig config;
    char name[COMM_NAME_MAX_LENGTH];
    uint32_t rank, ranks;

    CHECK(aclrtSetDevice((int32_t)me->rank));
    memset(&ticket, 0, sizeof ticket);
    if (me->rank == 0)
        CHECK(HcclGetRootInfo(&ticket));
    share(me->rank, me->ranks, &ticket, sizeof ticket);
    HcclCommConfigInit(&config);
    strcpy(config.hcclCommName, "sweep");
    config.hcclBufferSize = 64;
    CHECK(HcclCommInitRootInfoConfig(me->ranks, &ticket, me->rank, &config, &me->comm));
    CHECK(HcclGetCommName(me->comm, name));
    CHECK(HcclGetRankId(me->comm, &rank));
    CHECK(HcclGetRankSize(me->comm, &ranks));
    if (strcmp(name, "sweep") != 0 || rank != me->rank || ranks != me->ranks
        || HcclGetCommConfigCapability() <= (uint32_t)HCCL_COMM_CONFIG_COMM_NAME) {
        fprintf(stderr, "%s: rank %u of %u\n", name, rank, ranks);
        exit(1);
    }
}

/* Two halves of the ranks, each a communicator. */
static void halves(struct rank *me)
{
    const struct test test = {me, &TYPES[2], HCCL_REDUCE_SUM, 0};
    const uint32_t half = me->ranks / 2, low = me->rank < half;
    const uint32_t size = low ? half : me->ranks - half, first = low ? 0 : half;
    uint32_t members[MOST_RANKS];
    HcclCommConfig config;
    HcclComm part;
    int32_t sum = 0, got;

    if (half == 0)
        return;
    for (uint32_t index = 0; index < size; index++) {
        members[index] = first + index;
        sum += value(&test, first + index, 0);
    }
    HcclCommConfigInit(&config);
    CHECK(HcclCreateSubCommConfig(&me->comm, size, members, low, me->rank - first, &config, &part));
    give(&test, COUNT);
    CHECK(HcclAllReduce(me->in, me->out, COUNT, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM, part, me->stream));
    CHECK(aclrtSynchronizeStream(me->stream));
    CHECK(aclrtMemcpy(&got, sizeof got, me->out, sizeof got, ACL_MEMCPY_DEVICE_TO_HOST));
    CHECK(HcclCommDestroy(part));
    if (got != sum)
        fail(&test, "all_reduce in a half", "wrong sum");
}

int main(void)
{
    static struct rank all;
    struct rank *me = &all;
    HcclResult error = HCCL_E_INTERNAL;

    me->rank = variable("RANK");
    me->ranks = variable("WORLD_SIZE");
    me->bytes = (size_t)COUNT * me->ranks * 16;
    for (uint32_t rank = 0; rank < me->ranks; rank++) {
        me->counts[rank] = COUNT - 3 * rank;
        me->displs[rank] = (uint64_t)rank * COUNT + rank % 2;
    }
    CHECK(aclInit(NULL));
    join(me);
    CHECK(aclrtCreateStream(&me->stream));
    CHECK(aclrtMalloc(&me->in, me->bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtMalloc(&me->out, me->bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtMallocHost((void **)&me->host, me->bytes));
    for (size_t index = 0; index < sizeof TYPES / sizeof *TYPES; index++) {
        reductions(me, &TYPES[index]);
        copies(me, &TYPES[index]);
    }
    halves(me);
    CHECK(HcclBarrier(me->comm, me->stream));
    CHECK(aclrtSynchronizeStream(me->stream));
    CHECK(HcclGetCommAsyncError(me->comm, &error));
    CHECK(error);
    CHECK(HcclCommDestroy(me->comm));
    CHECK(aclrtFreeHost(me->host));
    CHECK(aclrtFree(me->in));
    CHECK(aclrtFree(me->out));
    CHECK(aclrtDestroyStream(me->stream));
    CHECK(aclrtResetDevice((int32_t)me->rank));
    CHECK(aclFinalize());
    printf("%u checked, %u refused\n", me->checked, me->refused);
    return 0;
}
