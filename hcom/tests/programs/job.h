/*
 * What every program here needs: checked calls, and a word that the first rank gives to all others, over the address
 * in MASTER_ADDR and MASTER_PORT.
 */
#ifndef JOB_H
#define JOB_H

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "acl/acl.h"
#include "hccl/hccl.h"
#include "hccl/hccl_types.h"

#ifdef BY_NAME
#include "by_name.h"
#endif

#define CHECK(call)                                                                                \
    do {                                                                                           \
        const int code_ = (int)(call);                                                             \
        if (code_ != 0) {                                                                          \
            const char *why_ = aclGetRecentErrMsg();                                               \
            fprintf(stderr, "%s:%d: %s: %d %s\n", __FILE__, __LINE__, #call, code_, why_ ? why_ : ""); \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static inline uint32_t variable(const char *name)
{
    const char *text = getenv(name);
    if (text == NULL) {
        fprintf(stderr, "%s is not set\n", name);
        exit(2);
    }
    return (uint32_t)strtoul(text, NULL, 10);
}

static inline void whole(int done)
{
    if (!done) {
        perror("the ranks do not find each other");
        exit(1);
    }
}

/* Rank 0's `bytes` bytes to all ranks. */
static inline void share(uint32_t rank, uint32_t ranks, void *data, size_t bytes)
{
    struct sockaddr_in address;
    const int yes = 1;
    int connection;

    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons((uint16_t)variable("MASTER_PORT"));
    inet_pton(AF_INET, getenv("MASTER_ADDR"), &address.sin_addr);
    if (rank != 0) {
        for (int tries = 0;; tries++) {
            connection = socket(AF_INET, SOCK_STREAM, 0);
            if (connect(connection, (struct sockaddr *)&address, sizeof address) == 0)
                break;
            close(connection);
            whole(tries < 3000);
            usleep(10000);
        }
        whole(recv(connection, data, bytes, MSG_WAITALL) == (ssize_t)bytes);
        close(connection);
        return;
    }
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    whole(bind(listener, (struct sockaddr *)&address, sizeof address) == 0);
    whole(listen(listener, 64) == 0);
    for (uint32_t other = 1; other < ranks; other++) {
        connection = accept(listener, NULL, NULL);
        whole(send(connection, data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes);
        close(connection);
    }
    close(listener);
}

#endif
