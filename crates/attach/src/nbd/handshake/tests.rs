use super::*;
use proptest::prelude::*;

fn export() -> Export {
    Export {
        name: "disk".into(),
        size_bytes: 1 << 30,
        read_only: false,
        discards: true,
        block_min_bytes: 4096,
        block_preferred_bytes: 4096,
        request_max_bytes: 32 << 20,
    }
}

fn option(option: u32, data: &[u8]) -> Vec<u8> {
    let head = [&MAGIC_OPTION.to_be_bytes()[..], &option.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data];
    head.concat()
}

fn go(name: &[u8], wanted: &[u16]) -> Vec<u8> {
    let mut data = [&(name.len() as u32).to_be_bytes()[..], name, &(wanted.len() as u16).to_be_bytes()].concat();
    wanted.iter().for_each(|kind| data.extend_from_slice(&kind.to_be_bytes()));
    data
}

/// Feeds the pieces one after the other; gives what was not taken.
fn feed(handshake: &mut Handshake, mut input: &[u8], piece: usize) -> usize {
    while !input.is_empty() {
        let taken = handshake.handle_input(&input[..piece.min(input.len())]);
        if taken == 0 {
            break;
        }
        input = &input[taken..];
    }
    input.len()
}

fn run(client: &[u8], piece: usize) -> (Handshake, Vec<u8>, usize) {
    let mut handshake = Handshake::new(export());
    let left = feed(&mut handshake, client, piece);
    let output = handshake.take_output();
    (handshake, output, left)
}

fn transmission(structured: bool, tells_allocation: bool) -> Progress {
    Progress::Transmission { structured, tells_allocation }
}

fn contexts(name: &[u8], queries: &[&[u8]]) -> Vec<u8> {
    let text = |text: &[u8]| [&(text.len() as u32).to_be_bytes()[..], text].concat();
    let count = (queries.len() as u32).to_be_bytes().to_vec();
    [text(name), count, queries.iter().flat_map(|query| text(query)).collect()].concat()
}

fn modern_client() -> Vec<u8> {
    let flags = 3u32.to_be_bytes().to_vec();
    [
        flags,
        option(OPT_STRUCTURED_REPLY, &[]),
        option(OPT_LIST, &[]),
        option(99, b"whatever"),
        option(OPT_GO, &go(b"nothing here", &[])),
        option(OPT_INFO, &go(b"disk", &[INFO_NAME])),
        option(OPT_GO, &go(b"", &[INFO_BLOCK_SIZE])),
    ]
    .concat()
}

#[test]
fn any_piecemeal_gives_the_same_answers_and_takes_no_request_byte() {
    let client = [modern_client(), vec![0x25, 0x60]].concat();
    let (whole, expected, left) = run(&client, usize::MAX);
    assert_eq!(whole.progress(), transmission(true, false));
    assert_eq!(left, 2, "what follows is the first request");
    for piece in 1..40 {
        let (handshake, output, left) = run(&client, piece);
        assert_eq!((handshake.progress(), output, left), (whole.progress(), expected.clone(), 2));
    }
}

#[test]
fn the_answers_are_those_of_the_document() {
    let (_, output, _) = run(&modern_client(), usize::MAX);
    let mut replies = Vec::new();
    let mut at = 18;
    while at < output.len() {
        assert_eq!(be64(&output, at), MAGIC_OPTION_REPLY);
        let length = be32(&output, at + 16) as usize;
        replies.push((be32(&output, at + 8), be32(&output, at + 12), output[at + 20..at + 20 + length].to_vec()));
        at += 20 + length;
    }
    let kinds: Vec<(u32, u32)> = replies.iter().map(|(option, kind, _)| (*option, *kind)).collect();
    let expected = [
        (OPT_STRUCTURED_REPLY, REP_ACK),
        (OPT_LIST, REP_SERVER),
        (OPT_LIST, REP_ACK),
        (99, REP_ERR_UNSUP),
        (OPT_GO, REP_ERR_UNKNOWN),
        (OPT_INFO, REP_INFO),
        (OPT_INFO, REP_INFO),
        (OPT_INFO, REP_INFO),
        (OPT_INFO, REP_ACK),
        (OPT_GO, REP_INFO),
        (OPT_GO, REP_INFO),
        (OPT_GO, REP_ACK),
    ];
    assert_eq!(kinds, expected);
    assert_eq!(replies[1].2, b"\0\0\0\x04disk");
    assert_eq!(be64(&replies[9].2, 2), 1 << 30);
    assert_eq!(be16(&replies[9].2, 10), 0b101_1110_1101);
    assert_eq!(be32(&replies[10].2, 2), 4096);
}

/// The answers to options as (option, answer, data).
fn replies(output: &[u8]) -> Vec<(u32, u32, Vec<u8>)> {
    let (mut replies, mut at) = (Vec::new(), 18);
    while at < output.len() {
        let length = be32(output, at + 16) as usize;
        replies.push((be32(output, at + 8), be32(output, at + 12), output[at + 20..at + 20 + length].to_vec()));
        at += 20 + length;
    }
    replies
}

#[test]
fn what_is_allocated_is_a_context_that_clients_list_and_choose() {
    let ask = |structured: bool, kind: u32, data: Vec<u8>| {
        let first = if structured { option(OPT_STRUCTURED_REPLY, &[]) } else { Vec::new() };
        let client = [3u32.to_be_bytes().to_vec(), first, option(kind, &data), option(OPT_GO, &go(b"disk", &[]))];
        let (handshake, output, _) = run(&client.concat(), 7);
        let answers: Vec<_> = replies(&output).into_iter().filter(|(option, ..)| *option == kind).collect();
        let told = answers.iter().map(|(_, answer, data)| (*answer, data.clone())).collect::<Vec<_>>();
        (told, handshake.progress() == transmission(structured, true))
    };
    let listed = (REP_META_CONTEXT, b"\0\0\0\0base:allocation".to_vec());
    let chosen = (REP_META_CONTEXT, b"\0\0\0\x01base:allocation".to_vec());
    let done = (REP_ACK, Vec::new());
    let (list, set) = (OPT_LIST_META_CONTEXT, OPT_SET_META_CONTEXT);
    for queries in [&[][..], &[&b"base:"[..]], &[b"qemu:dirty-bitmap:x", b"base:allocation"]] {
        assert_eq!(ask(true, list, contexts(b"", queries)), (vec![listed.clone(), done.clone()], false));
    }
    assert_eq!(ask(true, set, contexts(b"disk", &[b"base:allocation"])), (vec![chosen, done.clone()], true));
    for queries in [&[][..], &[&b"base:"[..]], &[b"base:allocatio"]] {
        assert_eq!(ask(true, set, contexts(b"disk", queries)), (vec![done.clone()], false));
    }
    let refused = |(told, chosen): (Vec<(u32, Vec<u8>)>, bool)| (told[0].0, chosen);
    assert_eq!(refused(ask(true, set, contexts(b"disc", &[b"base:allocation"]))), (REP_ERR_UNKNOWN, false));
    assert_eq!(refused(ask(false, set, contexts(b"disk", &[b"base:allocation"]))), (REP_ERR_INVALID, false));
    let mut endless = contexts(b"disk", &[b"base:allocation"]);
    endless[8..12].fill(0xff);
    assert_eq!(refused(ask(true, set, endless)), (REP_ERR_INVALID, false));
    assert_eq!(refused(ask(true, set, vec![0xff; 30])), (REP_ERR_INVALID, false));
}

#[test]
fn the_old_way_works_and_its_unknown_name_closes() {
    let client = |name: &[u8]| [1u32.to_be_bytes().to_vec(), option(OPT_EXPORT_NAME, name)].concat();
    let (handshake, output, _) = run(&client(b"disk"), usize::MAX);
    assert_eq!(handshake.progress(), transmission(false, false));
    assert_eq!(output.len(), 18 + 8 + 2 + 124);
    let (handshake, output, _) = run(&client(b"disc"), usize::MAX);
    assert_eq!((handshake.progress(), output.len()), (Progress::Ended(Ending::UnknownExport), 18));
}

#[test]
fn broken_clients_are_shown_the_door() {
    let ended = |client: &[u8]| matches!(run(client, 7).0.progress(), Progress::Ended(Ending::Protocol(_)));
    assert!(ended(&[0xff; 4]));
    assert!(ended(&[&[0, 0, 0, 1][..], &[0; 16]].concat()));
    let endless = [&[0, 0, 0, 1][..], &option(OPT_LIST, &[]).repeat(1000)].concat();
    assert!(ended(&endless));
    let mut huge = [&[0, 0, 0, 1][..], &option(OPT_GO, &[])].concat();
    huge[16..20].fill(0xff);
    assert!(ended(&huge));
}

/// CVE-2022-26495 and the like: a length that wraps when something is added to it, and names longer than some buffer.
#[test]
fn names_of_any_length_are_refused_and_the_right_one_still_goes() {
    let flags = [0, 0, 0, 1];
    let mut endless = go(b"disk", &[]);
    endless[..4].fill(0xff);
    let long = vec![b'x'; 3000];
    for kind in [OPT_INFO, OPT_GO] {
        for (query, answer) in [(endless.clone(), REP_ERR_INVALID), (go(&long, &[]), REP_ERR_UNKNOWN)] {
            let client = [&flags[..], &option(kind, &query), &option(OPT_GO, &go(b"disk", &[]))].concat();
            let (handshake, output, left) = run(&client, 7);
            assert_eq!((be32(&output[18..], 8), be32(&output[18..], 12)), (kind, answer));
            assert_eq!((handshake.progress(), left), (transmission(false, false), 0));
        }
    }
    let (handshake, ..) = run(&[&flags[..], &option(OPT_EXPORT_NAME, &long)].concat(), 7);
    assert_eq!(handshake.progress(), Progress::Ended(Ending::UnknownExport));
    for kind in [OPT_EXPORT_NAME, OPT_LIST, OPT_INFO, OPT_GO] {
        let mut endless = [&flags[..], &option(kind, &[])].concat();
        endless[16..20].fill(0xff);
        let (handshake, ..) = run(&endless, 7);
        assert_eq!(handshake.progress(), Progress::Ended(Ending::Protocol("option data too long")));
    }
}

proptest! {
    #[test]
    fn no_input_panics_or_stalls(tail in proptest::collection::vec(any::<u8>(), 0..200), kind in 0u32..13, piece in 1usize..50) {
        let client = [&3u32.to_be_bytes()[..], &option(kind, &tail), &tail].concat();
        let (handshake, _, left) = run(&client, piece);
        prop_assert!(left == 0 || handshake.progress() != Progress::Negotiating);
        prop_assert!(handshake.progress() != Progress::Negotiating || handshake.wanted() > 0);
    }
}
