use super::*;

#[test]
fn headers_survive_the_wire() {
    let command = ScsiCommand {
        is_final: true,
        is_read: true,
        attribute: 1,
        lun: [0, 1, 0, 0, 0, 0, 0, 0],
        task_tag: 0x0102_0304,
        expected_bytes: 4096,
        command_number: 7,
        expected_status_number: 9,
        cdb: [0x88; 16],
        ..ScsiCommand::default()
    };
    let header = command.write();
    assert_eq!(header.as_bytes()[..4], [0x01, 0xc1, 0, 0]);
    assert_eq!(header.as_bytes()[16..24], [1, 2, 3, 4, 0, 0, 0x10, 0]);
    assert_eq!((header.opcode(), header.is_final(), header.task_tag()), (Some(Opcode::ScsiCommand), true, 0x0102_0304));
    assert_eq!(ScsiCommand::read(&header), command);

    let login = LoginRequest {
        is_immediate: true,
        transits: true,
        current_stage: 1,
        next_stage: 3,
        isid: [0x80, 1, 2, 3, 4, 5],
        tsih: 0x1234,
        connection: 2,
        ..LoginRequest::default()
    };
    assert_eq!(login.write().as_bytes()[..16], [0x43, 0x87, 0, 0, 0, 0, 0, 0, 0x80, 1, 2, 3, 4, 5, 0x12, 0x34]);
    assert_eq!(LoginRequest::read(&login.write()), login);
}

#[test]
fn lengths_stand_beside_the_fields() {
    let mut header = NopIn { is_final: true, ..NopIn::default() }.write();
    header.set_data_bytes(0x01_02_03);
    assert_eq!(header.as_bytes()[4..8], [0, 1, 2, 3]);
    assert_eq!((header.data_bytes(), header.additional_bytes()), (0x01_02_03, 0));
}

#[test]
fn reserved_codes_are_no_operation() {
    for code in 0..64 {
        assert_eq!(Opcode::from_code(code).map(|opcode| opcode as u8).unwrap_or(code), code);
    }
    assert_eq!(Opcode::from_code(0x1c), None);
}
