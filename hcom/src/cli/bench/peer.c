/* One collective of an MPI library, measured as `hcom bench` measures its own.
 *
 *   mpirun -n RANKS peer OPERATION MODE BYTES DTYPE WARMUP ITERATIONS IN_PLACE
 *
 * BYTES is the larger of a rank's two buffers. ITERATIONS is 0 for as many as a quarter of a second holds.
 * Rank 0 prints {"us": median over samples of the slowest rank, "wrong": elements with a wrong value}. */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 32 << 10 };
enum operation { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, BROADCAST, OPERATIONS };
enum mode { REUSED, OWNED, WHOLE, MODES };
static const char *const OPERATION[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"};
static const char *const MODE[] = {"reused", "owned", "whole"};

static int rank, ranks, in_place;
static enum operation operation;
static enum mode mode;
static MPI_Datatype type;
static size_t element, count, block, input_bytes, output_bytes;
static char *input, *output, *area, chunk[CHUNK], room[CHUNK];
static char is_float;

static int find(const char *name, const char *const *names, int most) {
    for (int index = 0; index < most; index++)
        if (!strcmp(name, names[index])) return index;
    fprintf(stderr, "unknown: %s\n", name);
    exit(2);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

/* As in data.rs: tells rank, place and round. */
static uint64_t value(uint64_t from, uint64_t index, uint64_t salt) {
    uint64_t mixed = (index + 1) * 0x9e3779b97f4a7c15u ^ (from + 1) << 32;
    return ((mixed + salt) * 0xd6e8feb86659fd93u >> 40) % 61;
}

static void encode(uint64_t number, char *to) {
    float single = (float)number;
    int32_t word = (int32_t)number;
    int64_t wide = (int64_t)number;
    if (is_float) memcpy(to, &single, 4);
    else if (element == 1) *to = (char)number;
    else if (element == 4) memcpy(to, &word, 4);
    else memcpy(to, &wide, 8);
}

static void call(void) {
    void *from = in_place ? MPI_IN_PLACE : input;
    int all = (int)count, part = (int)block;
    switch (operation) {
    case ALL_REDUCE: MPI_Allreduce(from, output, all, type, MPI_SUM, MPI_COMM_WORLD); break;
    case ALL_GATHER: MPI_Allgather(from, part, type, output, part, type, MPI_COMM_WORLD); break;
    case REDUCE_SCATTER: MPI_Reduce_scatter_block(from, output, part, type, MPI_SUM, MPI_COMM_WORLD); break;
    case ALL_TO_ALL: MPI_Alltoall(from, part, type, output, part, type, MPI_COMM_WORLD); break;
    default: MPI_Bcast(output, all, type, 0, MPI_COMM_WORLD);
    }
}

static int contributes(void) { return operation != BROADCAST || rank == 0; }

static void rewrite(void) {
    if (!contributes()) return;
    for (size_t start = 0; start < input_bytes; start += CHUNK)
        memcpy(input + start, chunk, input_bytes - start < CHUNK ? input_bytes - start : CHUNK);
}

static void read_out(void) {
    for (size_t start = 0; start < output_bytes; start += CHUNK)
        memcpy(room, output + start, output_bytes - start < CHUNK ? output_bytes - start : CHUNK);
    __asm__ volatile("" : : "r"(room) : "memory");
}

static double sample(long batch) {
    double spent = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    double whole = now();
    for (long index = 0; index < batch; index++) {
        if (mode != REUSED) rewrite();
        if (mode == OWNED) {
            MPI_Barrier(MPI_COMM_WORLD);
            double begin = now();
            call();
            spent += now() - begin;
        } else {
            call();
            if (mode == WHOLE) read_out();
        }
    }
    return (mode == OWNED ? spent : now() - whole) / (double)batch;
}

static unsigned long long check(uint64_t salt) {
    unsigned long long wrong = 0;
    if (contributes())
        for (size_t index = 0; index < input_bytes / element; index++)
            encode(value((uint64_t)rank, index, salt), input + index * element);
    MPI_Barrier(MPI_COMM_WORLD);
    call();
    for (size_t index = 0; index < output_bytes / element; index++) {
        uint64_t right = 0;
        size_t place = operation == REDUCE_SCATTER ? (size_t)rank * block + index : index;
        char bytes[8];
        switch (operation) {
        case ALL_REDUCE:
        case REDUCE_SCATTER:
            for (int from = 0; from < ranks; from++) right += value((uint64_t)from, place, salt);
            break;
        case ALL_GATHER: right = value(index / block, index % block, salt); break;
        case ALL_TO_ALL: right = value(index / block, (size_t)rank * block + index % block, salt); break;
        default: right = value(0, index, salt);
        }
        encode(right, bytes);
        wrong += memcmp(bytes, output + index * element, element) != 0;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return wrong;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void pin(const char *text) {
    cpu_set_t every, one;
    CPU_ZERO(&every);
    CPU_ZERO(&one);
    if (!text || sched_getaffinity(0, sizeof every, &every)) return;
    int skip = atoi(text) % CPU_COUNT(&every);
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &every) && skip-- == 0) CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
}

int main(int argc, char **argv) {
    if (argc != 8) return 2;
    const char *own = getenv("OMPI_COMM_WORLD_RANK");
    pin(own ? own : getenv("PMI_RANK"));
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    operation = (enum operation)find(argv[1], OPERATION, OPERATIONS);
    mode = (enum mode)find(argv[2], MODE, MODES);
    size_t bytes = strtoull(argv[3], NULL, 10);
    static const char *const TYPE[] = {"f32", "i8", "i32", "i64"};
    static const char SIZE[] = {4, 1, 4, 8};
    int kind = find(argv[4], TYPE, 4);
    element = (size_t)SIZE[kind], is_float = kind == 0;
    type = kind == 0 ? MPI_FLOAT : kind == 1 ? MPI_INT8_T : kind == 2 ? MPI_INT32_T : MPI_INT64_T;
    long warmup = atol(argv[5]), iterations = atol(argv[6]);
    in_place = atoi(argv[7]);

    count = bytes / element, block = count / (size_t)ranks;
    input_bytes = operation == ALL_GATHER ? block * element : bytes;
    output_bytes = operation == REDUCE_SCATTER ? block * element : bytes;
    size_t pages = (bytes + 4095) & ~(size_t)4095;
    output = aligned_alloc(4096, pages), area = aligned_alloc(4096, pages);
    memset(output, 0, pages), memset(area, 0, pages);
    input = area;
    if (in_place || operation == BROADCAST)
        input = operation == ALL_GATHER ? output + (size_t)rank * block * element : output;
    for (size_t index = 0; index < CHUNK / element; index++)
        encode(value((uint64_t)rank, index, 0), chunk + index * element);

    unsigned long long wrong = check(bytes);
    sample(warmup > 0 ? warmup : 1);
    double estimate = sample(3), slowest;
    MPI_Allreduce(&estimate, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (slowest < 0.05) slowest = 0.05;
    double batch = 400 / slowest;
    batch = batch < 1 ? 1 : batch > 200 ? 200 : batch;
    long per_sample = (long)batch;
    double wanted = 250e3 / (slowest * (double)per_sample);
    long samples = wanted < 7 ? 7 : wanted > 400 ? 400 : (long)wanted;
    if (iterations > 0) {
        if (per_sample > iterations) per_sample = iterations;
        samples = (iterations + per_sample - 1) / per_sample;
    }
    double *times = malloc(sizeof(double) * (size_t)samples), *worst = malloc(sizeof(double) * (size_t)samples);
    for (long index = 0; index < samples; index++) times[index] = sample(per_sample);
    wrong += check(~(uint64_t)bytes);
    unsigned long long all_wrong;
    MPI_Reduce(times, worst, (int)samples, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(&wrong, &all_wrong, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        qsort(worst, (size_t)samples, sizeof *worst, ascending);
        printf("{\"us\": %.6f, \"wrong\": %llu}\n", worst[samples / 2], all_wrong);
        fflush(stdout);
    }
    MPI_Finalize();
    return 0;
}
