//! What initiators send (RFC 7143 11.3, 11.5, 11.7, 11.10, 11.12, 11.14, 11.16, 11.18).

use super::field::{Bit, Bits, Bytes, U8, U16, U32, header};

header! {
    /// SCSI Command (RFC 7143 11.3). An extended CDB stands in an additional header segment.
    ScsiCommand = ScsiCommand {
        /// Out of the order of command numbers.
        is_immediate: Bit<0, 6>,
        /// No unsolicited Data-Out follows.
        is_final: Bit<1, 7>,
        /// Data is expected from the target.
        is_read: Bit<1, 6>,
        /// Data is expected from the initiator.
        is_write: Bit<1, 5>,
        /// The task attribute: 0 untagged, 1 simple, 2 ordered, 3 head of queue, 4 ACA.
        attribute: Bits<1, 0, 3>,
        /// The eight bytes of the logical unit number.
        lun: Bytes<8, 8>,
        /// The task's tag.
        task_tag: U32<16>,
        /// Bytes that the initiator expects to transfer; for a bidirectional command those that it sends.
        expected_bytes: U32<20>,
        /// The command's number in the session.
        command_number: U32<24>,
        /// The next status number that the initiator expects on this connection.
        expected_status_number: U32<28>,
        /// The command descriptor block, or its first sixteen bytes.
        cdb: Bytes<32, 16>,
    }
}

header! {
    /// Task Management Function Request (RFC 7143 11.5).
    TaskRequest = TaskRequest {
        /// Out of the order of command numbers.
        is_immediate: Bit<0, 6>,
        /// The final bit: always set.
        is_final: Bit<1, 7>,
        /// What to do: 1 abort task, 2 abort task set, 3 clear ACA, 4 clear task set, 5 logical unit reset, 6 target warm
        /// reset, 7 target cold reset, 8 task reassign; RFC 7144 adds 9 query task, 10 query task set, 11 I_T nexus reset,
        /// 12 query asynchronous event.
        function: Bits<1, 0, 7>,
        /// The eight bytes of the logical unit number.
        lun: Bytes<8, 8>,
        /// This request's tag.
        task_tag: U32<16>,
        /// The tag of the task that is meant.
        referenced_task_tag: U32<20>,
        /// The request's number in the session.
        command_number: U32<24>,
        /// The next status number that the initiator expects on this connection.
        expected_status_number: U32<28>,
        /// The number of the task that is meant.
        referenced_command_number: U32<32>,
        /// For a reassigned task: the next Data-In or R2T number that is expected.
        expected_data_number: U32<36>,
    }
}

header! {
    /// Data-Out (RFC 7143 11.7).
    DataOut = DataOut {
        /// The last one of its sequence.
        is_final: Bit<1, 7>,
        /// The eight bytes of the logical unit number, as the R2T had it.
        lun: Bytes<8, 8>,
        /// The task's tag.
        task_tag: U32<16>,
        /// The tag of the R2T that it answers; [`super::TAG_NONE`] for unsolicited data.
        transfer_tag: U32<20>,
        /// The next status number that the initiator expects on this connection.
        expected_status_number: U32<28>,
        /// The number of this PDU in its sequence.
        data_number: U32<36>,
        /// Where its data belongs, in bytes from the start of the command's data.
        offset_bytes: U32<40>,
    }
}

header! {
    /// Login Request (RFC 7143 11.12).
    LoginRequest = LoginRequest {
        /// The immediate bit: always set.
        is_immediate: Bit<0, 6>,
        /// The initiator is ready to go to the next stage.
        transits: Bit<1, 7>,
        /// The text goes on in the next request.
        continues: Bit<1, 6>,
        /// The current stage: 0 security, 1 operational, 3 full feature.
        current_stage: Bits<1, 2, 2>,
        /// The stage that comes next.
        next_stage: Bits<1, 0, 2>,
        /// The highest version that the initiator speaks.
        version_max: U8<2>,
        /// The lowest.
        version_min: U8<3>,
        /// The initiator's part of the session's identity.
        isid: Bytes<8, 6>,
        /// The target's part: zero for a new session.
        tsih: U16<14>,
        /// The login's tag: the same in all its requests.
        task_tag: U32<16>,
        /// The connection's number in its session.
        connection: U16<20>,
        /// The first command number of the session (of a first connection), or the next one.
        command_number: U32<24>,
        /// The next status number that the initiator expects on this connection.
        expected_status_number: U32<28>,
    }
}

header! {
    /// Text Request (RFC 7143 11.10).
    TextRequest = TextRequest {
        /// Out of the order of command numbers.
        is_immediate: Bit<0, 6>,
        /// The initiator has nothing more to say in this exchange.
        is_final: Bit<1, 7>,
        /// The text goes on in the next request.
        continues: Bit<1, 6>,
        /// The eight bytes of the logical unit number, as the response had it.
        lun: Bytes<8, 8>,
        /// The exchange's tag.
        task_tag: U32<16>,
        /// What the target's last response gave; [`super::TAG_NONE`] to begin.
        transfer_tag: U32<20>,
        /// The request's number in the session.
        command_number: U32<24>,
        /// The next status number that the initiator expects on this connection.
        expected_status_number: U32<28>,
    }
}

header! {
    /// Logout Request (RFC 7143 11.14).
    LogoutRequest = LogoutRequest {
        /// Out of the order of command numbers.
        is_immediate: Bit<0, 6>,
        /// The final bit: always set.
        is_final: Bit<1, 7>,
        /// 0 close the session, 1 close the connection, 2 remove the connection for recovery.
        reason: Bits<1, 0, 7>,
        /// The request's tag.
        task_tag: U32<16>,
        /// The connection that is meant.
        connection: U16<20>,
        /// The request's number in the session.
        command_number: U32<24>,
        /// The next status number that the initiator expects on this connection.
        expected_status_number: U32<28>,
    }
}

header! {
    /// SNACK Request (RFC 7143 11.16).
    SnackRequest = SnackRequest {
        /// The final bit: always set.
        is_final: Bit<1, 7>,
        /// 0 Data or R2T, 1 Status, 2 DataACK, 3 R-Data.
        kind: Bits<1, 0, 4>,
        /// The eight bytes of the logical unit number.
        lun: Bytes<8, 8>,
        /// The task's tag, or [`super::TAG_NONE`].
        task_tag: U32<16>,
        /// The target's tag (DataACK), the SNACK tag (R-Data), or [`super::TAG_NONE`].
        transfer_tag: U32<20>,
        /// The next status number that the initiator expects on this connection.
        expected_status_number: U32<28>,
        /// The first number that is missed.
        first: U32<40>,
        /// How many are missed; zero: all from the first on.
        count: U32<44>,
    }
}

header! {
    /// NOP-Out (RFC 7143 11.18).
    NopOut = NopOut {
        /// Out of the order of command numbers.
        is_immediate: Bit<0, 6>,
        /// The final bit: always set.
        is_final: Bit<1, 7>,
        /// The eight bytes of the logical unit number: those of the NOP-In that it answers.
        lun: Bytes<8, 8>,
        /// Its tag; [`super::TAG_NONE`] when no answer is wanted.
        task_tag: U32<16>,
        /// The tag of the NOP-In that it answers, or [`super::TAG_NONE`].
        transfer_tag: U32<20>,
        /// Its number in the session.
        command_number: U32<24>,
        /// The next status number that the initiator expects on this connection.
        expected_status_number: U32<28>,
    }
}
