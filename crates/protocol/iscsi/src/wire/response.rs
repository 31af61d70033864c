//! What targets send (RFC 7143 11.4, 11.6 to 11.9, 11.11, 11.13, 11.15, 11.17, 11.19).

use super::field::{Bit, Bits, Bytes, U8, U16, U32, header};

header! {
    /// SCSI Response (RFC 7143 11.4). Sense data stands in the data segment, after its length in two bytes.
    ScsiResponse = ScsiResponse {
        /// The final bit: always set.
        is_final: Bit<1, 7>,
        /// The residual of a bidirectional command's read: it had more than there was room for.
        read_overflow: Bit<1, 4>,
        /// The residual of a bidirectional command's read: it had less than expected.
        read_underflow: Bit<1, 3>,
        /// The residual: more could have been transferred than was expected.
        overflow: Bit<1, 2>,
        /// The residual: less was transferred than was expected.
        underflow: Bit<1, 1>,
        /// 0 the command was completed at the target, 1 target failure.
        response: U8<2>,
        /// The SAM-5 status, if it was completed.
        status: U8<3>,
        /// The task's tag.
        task_tag: U32<16>,
        /// The tag of a following SNACK R-Data, or zero.
        snack_tag: U32<20>,
        /// The next status number of this connection, or the one of this PDU.
        status_number: U32<24>,
        /// The next command number that the target expects.
        expected_command_number: U32<28>,
        /// The highest command number that it takes.
        max_command_number: U32<32>,
        /// How many Data-In and R2T PDUs the command had.
        expected_data_number: U32<36>,
        /// The residual of a bidirectional command's read, in bytes.
        read_residual_bytes: U32<40>,
        /// The residual, in bytes.
        residual_bytes: U32<44>,
    }
}

header! {
    /// Task Management Function Response (RFC 7143 11.6).
    TaskResponse = TaskResponse {
        /// The final bit: always set.
        is_final: Bit<1, 7>,
        /// 0 complete, 1 task does not exist, 2 LUN does not exist, 3 task still allegiant, 4 reassignment not supported,
        /// 5 function not supported, 6 authorization failed, 7 succeeded (RFC 7144), 255 rejected.
        response: U8<2>,
        /// The additional response information of RFC 7144.
        additional: Bytes<5, 3>,
        /// The request's tag.
        task_tag: U32<16>,
        /// The next status number of this connection, or the one of this PDU.
        status_number: U32<24>,
        /// The next command number that the target expects.
        expected_command_number: U32<28>,
        /// The highest command number that it takes.
        max_command_number: U32<32>,
    }
}

header! {
    /// Data-In (RFC 7143 11.7).
    DataIn = DataIn {
        /// The last one of its sequence.
        is_final: Bit<1, 7>,
        /// The target wants a DataACK.
        wants_acknowledgement: Bit<1, 6>,
        /// The residual: more could have been transferred than was expected. With status only.
        overflow: Bit<1, 2>,
        /// The residual: less was transferred than was expected. With status only.
        underflow: Bit<1, 1>,
        /// The status is here too: no SCSI Response follows.
        has_status: Bit<1, 0>,
        /// The SAM-5 status, with `has_status`.
        status: U8<3>,
        /// The eight bytes of the logical unit number, if an acknowledgement is wanted.
        lun: Bytes<8, 8>,
        /// The task's tag.
        task_tag: U32<16>,
        /// What a DataACK has to bring back, or [`super::TAG_NONE`].
        transfer_tag: U32<20>,
        /// The next status number of this connection, or the one of this PDU.
        status_number: U32<24>,
        /// The next command number that the target expects.
        expected_command_number: U32<28>,
        /// The highest command number that it takes.
        max_command_number: U32<32>,
        /// The number of this PDU among the Data-In of the command.
        data_number: U32<36>,
        /// Where its data belongs, in bytes from the start of the command's data.
        offset_bytes: U32<40>,
        /// The residual, in bytes, with `has_status`.
        residual_bytes: U32<44>,
    }
}

header! {
    /// Ready To Transfer, R2T (RFC 7143 11.8).
    ReadyToTransfer = ReadyToTransfer {
        /// The final bit: always set.
        is_final: Bit<1, 7>,
        /// The eight bytes of the logical unit number.
        lun: Bytes<8, 8>,
        /// The task's tag.
        task_tag: U32<16>,
        /// What the Data-Out PDUs have to bring back.
        transfer_tag: U32<20>,
        /// The next status number of this connection, or the one of this PDU.
        status_number: U32<24>,
        /// The next command number that the target expects.
        expected_command_number: U32<28>,
        /// The highest command number that it takes.
        max_command_number: U32<32>,
        /// The number of this PDU among the R2Ts of the command.
        number: U32<36>,
        /// Where the data begins that is wanted, in bytes from the start of the command's data.
        offset_bytes: U32<40>,
        /// How much is wanted: at least one byte.
        desired_bytes: U32<44>,
    }
}

header! {
    /// Asynchronous Message (RFC 7143 11.9).
    AsyncMessage = AsyncMessage {
        /// The final bit: always set.
        is_final: Bit<1, 7>,
        /// The eight bytes of the logical unit number, for a SCSI event.
        lun: Bytes<8, 8>,
        /// [`super::TAG_NONE`].
        task_tag: U32<16>,
        /// The next status number of this connection, or the one of this PDU.
        status_number: U32<24>,
        /// The next command number that the target expects.
        expected_command_number: U32<28>,
        /// The highest command number that it takes.
        max_command_number: U32<32>,
        /// 0 SCSI event, 1 the target wants a logout, 2 it will drop a connection, 3 all connections of the session,
        /// 4 it wants to negotiate parameters, 5 all active tasks of the session's unit were ended (RFC 7144), 255 vendor.
        event: U8<36>,
        /// The vendor's code.
        vendor_code: U8<37>,
        /// The connection that is meant.
        parameter_1: U16<38>,
        /// Seconds to wait before coming back.
        parameter_2: U16<40>,
        /// Seconds for a logout, or within which to come back.
        parameter_3: U16<42>,
    }
}

header! {
    /// Text Response (RFC 7143 11.11).
    TextResponse = TextResponse {
        /// The target has nothing more to say in this exchange.
        is_final: Bit<1, 7>,
        /// The text goes on in the next response.
        continues: Bit<1, 6>,
        /// The eight bytes of the logical unit number.
        lun: Bytes<8, 8>,
        /// The exchange's tag.
        task_tag: U32<16>,
        /// What the next request has to bring back, or [`super::TAG_NONE`] at the end.
        transfer_tag: U32<20>,
        /// The next status number of this connection, or the one of this PDU.
        status_number: U32<24>,
        /// The next command number that the target expects.
        expected_command_number: U32<28>,
        /// The highest command number that it takes.
        max_command_number: U32<32>,
    }
}

header! {
    /// Login Response (RFC 7143 11.13).
    LoginResponse = LoginResponse {
        /// The next stage begins.
        transits: Bit<1, 7>,
        /// The text goes on in the next response.
        continues: Bit<1, 6>,
        /// The current stage: 0 security, 1 operational, 3 full feature.
        current_stage: Bits<1, 2, 2>,
        /// The stage that comes next.
        next_stage: Bits<1, 0, 2>,
        /// The highest version that the target speaks.
        version_max: U8<2>,
        /// The one in use.
        version_active: U8<3>,
        /// The initiator's part of the session's identity.
        isid: Bytes<8, 6>,
        /// The target's part: in the last response.
        tsih: U16<14>,
        /// The login's tag.
        task_tag: U32<16>,
        /// The next status number of this connection, or the one of this PDU.
        status_number: U32<24>,
        /// The next command number that the target expects.
        expected_command_number: U32<28>,
        /// The highest command number that it takes.
        max_command_number: U32<32>,
        /// 0 success, 1 redirection, 2 initiator error, 3 target error.
        status_class: U8<36>,
        /// What exactly (RFC 7143 11.13.5).
        status_detail: U8<37>,
    }
}

header! {
    /// Logout Response (RFC 7143 11.15).
    LogoutResponse = LogoutResponse {
        /// The final bit: always set.
        is_final: Bit<1, 7>,
        /// 0 closed, 1 no such connection, 2 recovery is not supported, 3 cleanup failed.
        response: U8<2>,
        /// The request's tag.
        task_tag: U32<16>,
        /// The next status number of this connection, or the one of this PDU.
        status_number: U32<24>,
        /// The next command number that the target expects.
        expected_command_number: U32<28>,
        /// The highest command number that it takes.
        max_command_number: U32<32>,
        /// Seconds to wait before tasks can be reassigned or the session be restored.
        time_to_wait_s: U16<40>,
        /// Seconds after that for which the target keeps the tasks.
        time_to_retain_s: U16<42>,
    }
}

header! {
    /// Reject (RFC 7143 11.17). The header of the rejected PDU stands in the data segment.
    Reject = Reject {
        /// The final bit: always set.
        is_final: Bit<1, 7>,
        /// 2 data digest error, 3 SNACK reject, 4 protocol error, 5 command not supported, 6 too many immediate
        /// commands, 7 task in progress, 8 invalid Data-ACK, 9 invalid PDU field, 10 long operation, 12 waiting for logout.
        reason: U8<2>,
        /// [`super::TAG_NONE`].
        task_tag: U32<16>,
        /// The next status number of this connection, or the one of this PDU.
        status_number: U32<24>,
        /// The next command number that the target expects.
        expected_command_number: U32<28>,
        /// The highest command number that it takes.
        max_command_number: U32<32>,
        /// The next Data-In or R2T number, for the reasons that have one.
        data_number: U32<36>,
    }
}

header! {
    /// NOP-In (RFC 7143 11.19).
    NopIn = NopIn {
        /// The final bit: always set.
        is_final: Bit<1, 7>,
        /// The eight bytes of the logical unit number, for the NOP-Out that answers it.
        lun: Bytes<8, 8>,
        /// The tag of the NOP-Out that it answers, or [`super::TAG_NONE`].
        task_tag: U32<16>,
        /// Its own tag, if it wants an answer; else [`super::TAG_NONE`].
        transfer_tag: U32<20>,
        /// The next status number of this connection, or the one of this PDU.
        status_number: U32<24>,
        /// The next command number that the target expects.
        expected_command_number: U32<28>,
        /// The highest command number that it takes.
        max_command_number: U32<32>,
    }
}
