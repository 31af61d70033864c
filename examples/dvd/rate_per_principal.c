/* So many bytes in a second for each principal, whoever else is there: reads and writes together.
 *
 * A principal that has moved more than its share waits: its commands are deferred until it has earned them. For each principal the
 * program remembers the time until which what it has moved is paid for. Who comes with a time that is past is served at once, and who did
 * nothing for a while may move a burst. This is no state to be kept: after a restart everybody begins anew. */
#include "sanwire_dvd.h"

#define BYTES_PER_SECOND (10u << 20)
#define BURST_US 100000u

static struct sanwire_command command;
static struct sanwire_answer answer;

struct sanwire_header sanwire_abi_1 = {
    .command = &command,
    .answer = &answer,
    .classes = SANWIRE_READ | SANWIRE_WRITE | SANWIRE_COPY_SOURCE | SANWIRE_COPY_TARGET,
};

/* Until when each principal's bytes are paid for, in microseconds since 1970. Number 256 stands for all that came later than the first 256. */
static uint64_t paid_until_us[257];

SANWIRE_EXPORT(judge) uint32_t judge(void)
{
    uint64_t now_us = command.unix_ms * 1000;
    uint64_t *paid = &paid_until_us[command.principal_number];
    uint64_t bytes = command.blocks * command.block_bytes;

    if (command.cdb[0] == 0x35 || command.cdb[0] == 0x91) /* SYNCHRONIZE CACHE moves nothing */
        return SANWIRE_ALLOW;
    if (*paid > now_us + BURST_US) {
        answer.delay_ms = (*paid - now_us - BURST_US) / 1000 + 1;
        /* A longer time than the server lets pass at once. */
        if (answer.delay_ms > 1000)
            answer.delay_ms = 1000;
        return SANWIRE_DEFER;
    }
    if (*paid < now_us)
        *paid = now_us;
    *paid += bytes * 1000000 / BYTES_PER_SECOND;
    return SANWIRE_ALLOW;
}
