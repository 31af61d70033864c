/* What a program in C shares with the server: version 1 of the ABI, as docs/dvd-programs.md explains it. */
#ifndef SANWIRE_DVD_H
#define SANWIRE_DVD_H

#include <stdint.h>

/* Classes of operations: what a command needs, and what a program wants to judge. */
enum {
    SANWIRE_INFORMATION = 0x01,
    SANWIRE_READ = 0x02,
    SANWIRE_WRITE = 0x04,
    SANWIRE_DISCARD = 0x08,
    SANWIRE_MANAGEMENT = 0x10,
    SANWIRE_RESERVATIONS = 0x20,
    SANWIRE_COPY_SOURCE = 0x40,
    SANWIRE_COPY_TARGET = 0x80,
};

/* What judge() returns: one of the first five, and any of the others with it. */
enum {
    SANWIRE_ALLOW = 1,
    SANWIRE_REFUSE = 2,
    SANWIRE_REDIRECT = 3,
    SANWIRE_REWRITE = 4,
    SANWIRE_DEFER = 5,
    SANWIRE_KEEP = 0x100,     /* the state must be durable before the command begins; of ended(): before it is answered */
    SANWIRE_TELL_END = 0x200, /* ended() is called with the token when the command has ended */
};

/* What the command is. The server fills it in before it calls judge(). */
struct sanwire_command {
    uint32_t classes;
    uint32_t cdb_bytes;
    uint8_t cdb[32];
    uint64_t lba;
    uint64_t blocks;
    uint64_t capacity_blocks;
    uint32_t block_bytes;
    uint32_t range_count;
    uint32_t ranges_given;
    uint32_t data_given;
    uint64_t unix_ms;
    uint32_t waited_ms;
    uint32_t principal_number;
    uint32_t principal_kind;
    uint32_t principal_bytes;
    uint64_t reserved[3];
    uint8_t principal[256];
};

/* What is to be done with it. The server fills it with zeroes before it calls judge(). */
struct sanwire_answer {
    uint8_t sense_key, sense_code, sense_qualifier, sense_reserved;
    uint32_t delay_ms;
    uint64_t lba;
    uint64_t token;
    uint32_t cdb_bytes;
    uint32_t reserved;
    uint8_t cdb[32];
};

struct sanwire_range {
    uint64_t lba;
    uint64_t blocks;
};

/* Where all this is. A program defines one of the name sanwire_abi_1, and has the linker export it. */
struct sanwire_header {
    struct sanwire_command *command;
    struct sanwire_answer *answer;
    struct sanwire_range *ranges;
    uint32_t ranges_max;
    void *data;
    uint32_t data_max_bytes;
    void *state;
    uint32_t state_bytes;
    uint32_t classes;
    uint32_t reserved[3];
};

_Static_assert(sizeof(struct sanwire_command) == 384, "the ABI says so");
_Static_assert(sizeof(struct sanwire_answer) == 64, "the ABI says so");
_Static_assert(sizeof(struct sanwire_header) == 48, "the ABI says so");

/* A function of the program that the server calls. */
#define SANWIRE_EXPORT(name) __attribute__((export_name(#name)))

#endif
