use proptest::prelude::*;

use super::*;

fn header(disk_type: DiskType, from_server: bool) -> Header {
    let (packet_type, disk_address) = (PacketType::Pdu, 7);
    Header { from_server, error: None, packet_type, disk_type, disk_address, server_port: 0x1122, client_port: 0x3344 }
}

fn ata(register: Register, from_server: bool, flags: Flags) -> Pdu {
    let header = header(DiskType::Sata, from_server);
    Pdu { header, flags, fields: Fields::Ata(register), command: 0x5566, group: 0x0102_0304, serial: 5 }
}

const HEAD: [u8; 8] = [0x10, 0, 0x12, 7, 0x11, 0x22, 0x33, 0x44];
const TAIL: [u8; 10] = [0x55, 0x66, 1, 2, 3, 4, 0, 0, 0, 5];

#[test]
fn an_address_of_24_bits_is_in_lba0_lba2_and_lba4() {
    let register = Register { feature: 0xaa, count: 2, code: 0xca, lba: 0x0a0b0c, is_long: false };
    let flags = Flags { write: true, first: true, last: true, ..Flags::default() };
    let pdu = ata(register, false, flags);
    let bytes = pdu.write();
    assert_eq!(bytes[..], [&HEAD[..], &[0x98, 0xaa, 2, 0xca, 0x0c, 0, 0x0b, 0, 0x0a, 0], &TAIL].concat());
    assert_eq!(Pdu::read(&bytes), Ok(pdu));
    assert_eq!(pdu.body(), Body { before_bytes: 0, data_bytes: 1024 });
    for at in [13, 15, 17] {
        let mut long = bytes;
        long[at] = 1;
        assert_eq!(Pdu::read(&long), Err(Malformed::Field("LBA")), "48 bits without E");
    }
}

#[test]
fn an_address_of_48_bits_is_in_all_six_the_lowest_first() {
    let register = Register { feature: 0x1ff, count: 0x0800, code: 0x25, lba: 0x0605_0403_0201, is_long: true };
    let mut pdu = ata(register, false, Flags { first: true, last: true, sync: true, ..Flags::default() });
    let bytes = pdu.write();
    assert_eq!(bytes[..], [&HEAD[..], &[0x78, 0xff, 0, 0x25, 1, 2, 3, 4, 5, 6], &TAIL].concat());
    assert_eq!(pdu.body(), Body { before_bytes: 2, data_bytes: 0 }, "the upper bytes of both registers");
    let mut read = Pdu::read(&bytes).unwrap();
    read.widen([1, 8]);
    assert_eq!(read, pdu);
    pdu.flags.write = true;
    pdu.fields = Fields::Ata(Register { count: 16, feature: 0, ..register });
    assert_eq!(pdu.body(), Body { before_bytes: 0, data_bytes: 8192 }, "of one with data they are zero");
}

#[test]
fn an_answer_has_data_when_its_status_says_so() {
    let register = Register { feature: 0, count: 16, code: 0x58, lba: 9, is_long: false };
    let write = Flags { write: true, ..Flags::default() };
    assert_eq!(ata(register, true, Flags::default()).body().data_bytes, 8192);
    assert_eq!(ata(Register { code: 0x50, ..register }, true, write).body().data_bytes, 0);
}

#[test]
fn a_scsi_packet_says_where_its_data_belongs() {
    let scsi = Scsi { before_bytes: 16, status: 0, length_bytes: 0x0200, offset_bytes: 0x0102_0304 };
    let flags = Flags { write: true, first: true, group_end: true, ack_now: true, ..Flags::default() };
    let mut pdu = ata(Register { feature: 0, count: 0, code: 0, lba: 0, is_long: false }, true, flags);
    (pdu.header, pdu.fields) = (header(DiskType::Scsi, true), Fields::Scsi(scsi));
    let bytes = pdu.write();
    let head = [0x18, 0, 0x13, 7, 0x11, 0x22, 0x33, 0x44];
    assert_eq!(bytes[..], [&head[..], &[0x96, 16, 0, 0, 2, 0, 1, 2, 3, 4], &TAIL].concat());
    assert_eq!(Pdu::read(&bytes), Ok(pdu));
    assert_eq!(pdu.body(), Body { before_bytes: 16, data_bytes: 512 });
    let mut long = bytes;
    long[8] |= E;
    assert!(Pdu::read(&long).is_err(), "E means nothing for SCSI");
}

proptest! {
    #[test]
    fn what_is_read_is_written_again(mut bytes in any::<[u8; PDU_BYTES]>(), disk_type in 1u8..4) {
        bytes[0] = 0x10 | bytes[0] & 8;
        (bytes[1], bytes[2], bytes[8]) = (0, 0x10 | disk_type, bytes[8] & 0xfe);
        bytes[20] &= 0x7f;
        bytes[24..27].fill(0);
        match disk_type {
            3 => (bytes[8], bytes[10]) = (bytes[8] & !E, 0),
            _ if bytes[8] & E == 0 => (bytes[13], bytes[15], bytes[17]) = (0, 0, 0),
            _ => {}
        }
        let pdu = Pdu::read(&bytes).unwrap();
        prop_assert_eq!(pdu.write(), bytes);
        prop_assert!(pdu.number() >> 63 == 0);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(pdu) = Pdu::read(&bytes) {
            let _ = pdu.body();
            prop_assert_eq!(&pdu.write()[..], &bytes[..PDU_BYTES]);
        }
    }
}
