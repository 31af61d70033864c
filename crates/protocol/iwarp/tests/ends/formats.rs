//! Wire formats: what is written is read as it was, and whatever bytes come, nothing is read that is not there.

use proptest::prelude::*;
use sanwire_buffer::Head;
use sanwire_iwarp::wire::{
    DEPTH_ANY, Enhanced, PRIVATE_DATA_MAX_BYTES, ReadRequest, Rtr, STARTUP_BYTES, Segment, Stag, Startup, Target,
    Terminate,
};

fn enhanced() -> impl Strategy<Value = Enhanced> {
    (any::<[bool; 4]>(), 0..=DEPTH_ANY, 0..=DEPTH_ANY).prop_map(|([is_peer_to_peer, send, write, read], ird, ord)| {
        Enhanced { is_peer_to_peer, rtr: Rtr { send, write, read }, ird, ord }
    })
}

fn startup() -> impl Strategy<Value = Startup> {
    let flags = (any::<[bool; 4]>(), 0u8..=4, proptest::option::of(enhanced()));
    let private_data = proptest::collection::vec(any::<u8>(), 0..=508);
    (flags, private_data).prop_map(|(([is_reply, markers, crc, rejects], revision, enhanced), private_data)| Startup {
        is_reply,
        markers,
        crc,
        is_rejected: is_reply && rejects,
        revision,
        enhanced: enhanced.filter(|_| revision >= 2),
        private_data,
    })
}

fn segment() -> impl Strategy<Value = Segment> {
    let tagged = any::<(u32, u64)>().prop_map(|(stag, offset)| Target::Tagged { stag: Stag(stag), offset });
    let untagged = any::<[u32; 4]>().prop_map(|[invalidate, queue, sequence, offset]| Target::Untagged {
        invalidate: Stag(invalidate),
        queue,
        sequence,
        offset,
    });
    let target = prop_oneof![tagged, untagged];
    (any::<bool>(), 0u8..4, 0u8..4, 0u8..16, target).prop_map(
        |(is_last, ddp_version, rdmap_version, opcode, target)| Segment {
            is_last,
            ddp_version,
            rdmap_version,
            opcode,
            target,
        },
    )
}

proptest! {
    #[test]
    fn frames_of_setup_are_read_as_they_were_written(startup in startup(), behind: Vec<u8>, cut: prop::sample::Index) {
        let bytes = startup.write();
        let is_reply = startup.is_reply;
        prop_assert_eq!(Startup::read(&bytes[..cut.index(bytes.len())], is_reply), Ok(None));
        prop_assert!(Startup::read(&bytes, !is_reply).is_err());
        let length = bytes.len();
        prop_assert_eq!(Startup::read(&[bytes, behind].concat(), is_reply), Ok(Some((startup, length))));
    }

    #[test]
    fn headers_are_read_as_they_were_written(segment in segment(), behind: Vec<u8>, cut: prop::sample::Index) {
        let mut head = Head::new();
        segment.write(&mut head);
        prop_assert_eq!(head.len(), segment.length_bytes());
        prop_assert_eq!(Segment::read(&head[..cut.index(head.len())]), None);
        prop_assert_eq!(Segment::read(&[&head, &behind[..]].concat()), Some(segment));
    }

    /// What is reserved is not looked at; everything else is written as it came.
    #[test]
    fn whatever_bytes_come_only_what_is_there_is_read(bytes in proptest::collection::vec(any::<u8>(), 0..80), has_key: bool) {
        if let Some(segment) = Segment::read(&bytes) {
            let mut head = Head::new();
            segment.write(&mut head);
            let mut expected = bytes[..head.len()].to_vec();
            expected[0] &= !0x3c;
            expected[1] &= !0x30;
            prop_assert_eq!(&*head, &expected[..]);
        }
        if let Some(header) = bytes.first_chunk() {
            prop_assert_eq!(&ReadRequest::read(header).write(), header);
        }
        if let Some(terminate) = Terminate::read(&bytes) {
            prop_assert!(terminate.headers.len() <= bytes.len());
            prop_assert_eq!(Terminate::read(&terminate.write()), Some(terminate));
        }
        let mut frame = if has_key { b"MPA ID Req Frame".to_vec() } else { Vec::new() };
        frame.extend_from_slice(&bytes);
        if let Ok(Some((startup, length))) = Startup::read(&frame, false) {
            prop_assert!(length <= frame.len().min(STARTUP_BYTES + PRIVATE_DATA_MAX_BYTES));
            prop_assert_eq!(&startup.write()[18..], &frame[18..length]);
        }
    }
}
