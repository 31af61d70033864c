//! Binary values of texts, and answers to a target's challenge: without the secret nobody gets in, and nobody gets an
//! answer out of the target.
#![no_main]

#[path = "../../crates/protocol/iscsi/src/chap/binary.rs"]
mod binary;

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use sanwire_core::Instant;
use sanwire_fuzz::login::{OneTarget, TARGET, pdu, sent, server, value};
use sanwire_iscsi::LoginOutcome;
use sanwire_iscsi::wire::LoginRequest;

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let directory = OneTarget::new(true, [7; 32]);
    let mut server = server([1; 32]);
    let mut ask = |transits: bool, text: String| {
        let request =
            LoginRequest { is_immediate: true, transits, next_stage: u8::from(transits), ..Default::default() };
        server.handle_input(&pdu(request.write(), text.into_bytes()), &directory, Instant::ZERO);
        let answer = String::from_utf8_lossy(&sent(&mut server)).into_owned();
        assert!(!answer.contains("CHAP_R"), "an answer to a stranger");
        match server.poll_outcome() {
            Some(LoginOutcome::Admitted(_)) => panic!("a stranger was let in"),
            Some(LoginOutcome::Refused(_) | LoginOutcome::Redirected(_)) => None,
            Some(LoginOutcome::Lost) => panic!("only an adapter's connection is lost"),
            None => Some(answer),
        }
    };
    let names = format!("InitiatorName=iqn.2026-11.org.example:host\0TargetName={TARGET}\0");
    ask(false, names + "AuthMethod=CHAP\0");
    let algorithms = u.choose(&["5", "6", "7", "8", "8,7,6,5", "0x7"])?;
    let challenge = ask(false, format!("CHAP_A={algorithms}\0")).unwrap_or_default();
    let reflected = challenge.find("CHAP_I=").map_or("", |at| challenge[at..].trim_end_matches('\0'));
    let mut text = String::new();
    for key in ["CHAP_N", "CHAP_R", "CHAP_I", "CHAP_C"] {
        match u.int_in_range(0..=7u8)? {
            0 => {}
            1 => text.push_str(&format!("{key}=user\0")),
            2 => text.push_str(&format!("{reflected}\0")),
            3 => text.push_str(&format!("{key}={}\0", binary::encode(u.arbitrary()?))),
            _ => text.push_str(&format!("{key}={}\0", value(u)?)),
        }
    }
    ask(u.arbitrary()?, text);
    Ok(())
}

fuzz_target!(|input: &[u8]| {
    if let Ok(text) = std::str::from_utf8(input) {
        for max_bytes in [0, 1, 16, 32, 1024] {
            if let Some(bytes) = binary::decode(text, max_bytes) {
                assert!(bytes.len() <= max_bytes);
                assert_eq!(binary::decode(&binary::encode(&bytes), max_bytes), Some(bytes));
            }
        }
    }
    let _ = run(&mut Unstructured::new(input));
});
