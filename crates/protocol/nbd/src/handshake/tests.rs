use proptest::prelude::*;

use super::*;

fn greeting(flags: u16) -> Vec<u8> {
    [&MAGIC_INIT.to_be_bytes()[..], &MAGIC_OPTION.to_be_bytes(), &flags.to_be_bytes()].concat()
}

fn reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = MAGIC_OPTION_REPLY.to_be_bytes().to_vec();
    [option, kind, data.len() as u32].iter().for_each(|word| bytes.extend(word.to_be_bytes()));
    bytes.extend(data);
    bytes
}

fn run(script: &[Vec<u8>]) -> Result<Option<Export>, HandshakeError> {
    let mut handshake = Handshake::new("disk".to_owned());
    let bytes = script.concat();
    let mut rest = &bytes[..];
    loop {
        let taken = handshake.take(rest)?;
        rest = &rest[taken..];
        if taken == 0 || handshake.export().is_some() {
            return Ok(handshake.export());
        }
    }
}

#[test]
fn those_that_are_no_such_server_are_told_apart() {
    assert_eq!(run(&[b"HTTP/1.1 400".to_vec()]), Err(HandshakeError::NotNbd));
    assert_eq!(run(&[b"NBDMAG".to_vec()]), Ok(None), "so far it may be one");
    let old = [b"NBDMAGIC".to_vec(), vec![0, 0, 0x42, 2, 0x81, 0x86, 0x12, 0x53], vec![0; 136]].concat();
    assert_eq!(run(&[old]), Err(HandshakeError::TooOld));
    assert_eq!(run(&[greeting(0)]), Err(HandshakeError::TooOld));
    let tls = reply(OPT_STRUCTURED_REPLY, REP_ERR_TLS_REQD, b"");
    assert_eq!(run(&[greeting(3), tls]), Err(HandshakeError::NeedsTls));
}

#[test]
fn refusals_and_nonsense_are_told() {
    let until_go = [greeting(3), reply(OPT_STRUCTURED_REPLY, REP_ERR_UNSUP, b"")].concat();
    let go = |kind, data: &[u8]| run(&[until_go.clone(), reply(OPT_GO, kind, data)]);
    let refused = Err(HandshakeError::Refused { text: "not for you".to_owned() });
    assert_eq!(go(REP_ERR_POLICY, b"not for you"), refused);
    assert!(matches!(go(REP_ACK, b""), Err(HandshakeError::Violation(_))), "no size");
    assert!(matches!(go(REP_INFO, &[0, 0, 1]), Err(HandshakeError::Violation(_))));
    let sizes = |min: u32, preferred: u32, max: u32| {
        let mut data = INFO_BLOCK_SIZE.to_be_bytes().to_vec();
        [min, preferred, max].iter().for_each(|size| data.extend(size.to_be_bytes()));
        go(REP_INFO, &data)
    };
    assert_eq!(sizes(512, 4096, u32::MAX), Ok(None));
    for (min, preferred, max) in
        [(0, 4096, 1 << 20), (3, 4096, 1 << 20), (1 << 17, 1 << 17, 1 << 20), (512, 256, 4096), (1, 4096, 512)]
    {
        assert!(matches!(sizes(min, preferred, max), Err(HandshakeError::Violation(_))), "{min} {preferred} {max}");
    }
    let long = [&MAGIC_OPTION_REPLY.to_be_bytes()[..], &[0, 0, 0, 7, 0, 0, 0, 3, 0xff, 0, 0, 0]].concat();
    assert!(matches!(run(&[until_go.clone(), long]), Err(HandshakeError::Violation(_))));
    let other = reply(OPT_LIST, REP_ACK, b"");
    assert!(matches!(run(&[until_go, other]), Err(HandshakeError::Violation(_))));
}

#[test]
fn an_endless_answer_ends() {
    let mut script = vec![greeting(3), reply(OPT_STRUCTURED_REPLY, REP_ACK, b"")];
    script.extend(vec![reply(OPT_SET_META_CONTEXT, REP_META_CONTEXT, b"\0\0\0\x01x"); REPLIES_MAX + 1]);
    assert!(matches!(run(&script), Err(HandshakeError::Violation(_))));
}

proptest! {
    #[test]
    fn it_always_makes_progress_with_enough_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200), options in 0u32..12) {
        let mut script = greeting(3);
        script.extend(reply(OPT_STRUCTURED_REPLY, REP_ACK, b""));
        script.extend(reply(OPT_SET_META_CONTEXT, if options > 5 { REP_ACK } else { REP_ERR_INVALID }, b""));
        script.extend(reply(OPT_GO, REP_INFO, &bytes));
        script.extend(bytes);
        let mut handshake = Handshake::new("disk".to_owned());
        let mut rest = &script[..];
        while let Ok(taken @ 1..) = handshake.take(rest) {
            rest = &rest[taken..];
            prop_assert!(handshake.take_output().len() < 1000);
        }
        prop_assert!(handshake.take(&[0; WANTED_MAX_BYTES]) != Ok(0));
    }
}
