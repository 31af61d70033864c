//! How data came from a connection to its place: `sanwire info` and `sanwire bench`.

use sanwire_core::{Movement, Rdma, Size};
use sanwire_verbs::COPIED_MAX_BYTES;
use serde_json::{Value, json};

/// For programs.
pub(super) fn to_json(movement: &Movement, adapter: Option<&str>) -> Value {
    let Movement { placed_bytes, direct_bytes, copied_bytes, rdma } = *movement;
    let rdma = rdma.map(|Rdma { stags, stags_ever, credits, fpdu_max_bytes, segment_bytes }| {
        json!({
            "stags": stags,
            "stags_ever": stags_ever,
            "credits": credits,
            "fpdu_max_bytes": fpdu_max_bytes,
            "segment_bytes": segment_bytes,
            "path": if adapter.is_some() { "rdma" } else { "tcp" },
            "adapter": adapter,
        })
    });
    json!({ "placed_bytes": placed_bytes, "direct_bytes": direct_bytes, "copied_bytes": copied_bytes, "rdma": rdma })
}

/// For people, where data goes by RDMA: what it is, and what is told of it.
pub(super) fn rows(movement: &Movement, adapter: Option<&str>) -> Vec<[String; 2]> {
    let Movement { placed_bytes, direct_bytes, copied_bytes, rdma } = *movement;
    let Some(Rdma { stags, stags_ever, credits, fpdu_max_bytes, segment_bytes }) = rdma else { return Vec::new() };
    let segments = segment_bytes.map(|bytes| format!(" in segments of {bytes}")).unwrap_or_default();
    let [placed, direct, copied] = [placed_bytes, direct_bytes, copied_bytes].map(Size);
    let (path, zero_copy) = match adapter {
        Some(adapter) => {
            let path_mtu = segment_bytes.map(|bytes| format!(", path MTU {bytes}")).unwrap_or_default();
            (format!("by the adapter {adapter}{path_mtu}"), zero_copy_by_adapter())
        }
        None => (
            format!("iWARP over TCP, in software; FPDUs of up to {fpdu_max_bytes} bytes{segments}"),
            "data that is sent, and received data of 4 KiB and more".to_owned(),
        ),
    };
    let rows = [
        ("RDMA", format!("{path}; {credits} credits")),
        ("STags", format!("{stags} good now, {stags_ever} in all")),
        ("zero-copy", zero_copy),
        ("received", format!("{placed} of data, {direct} of it straight into its place; {copied} copied")),
    ];
    rows.map(|(what, told)| [what.to_owned(), told]).into()
}

/// What an adapter moves without a copy. Where the other end's memory is registered, only that knows: of our own server it is said.
fn zero_copy_by_adapter() -> String {
    let copied_max = Size(COPIED_MAX_BYTES as u64);
    format!(
        "here, data that is read, and that is written but for what comes with its command (up to 4 KiB) or lies in several places; a \
         server of Sanwire copies data of up to {copied_max}, but for what lies in the memory of its shards on InfiniBand and RoCE"
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_of_rdma_people_are_told() {
        let mut movement = Movement { placed_bytes: 3 << 20, direct_bytes: 1 << 20, copied_bytes: 4 << 20, rdma: None };
        assert!(rows(&movement, None).is_empty());
        let told = to_json(&movement, None);
        assert_eq!((&told["rdma"], &told["direct_bytes"]), (&Value::Null, &json!(1 << 20)));
        movement.rdma =
            Some(Rdma { stags: 2, stags_ever: 9, credits: 863, fpdu_max_bytes: 1444, segment_bytes: Some(1448) });
        let told: Vec<String> = rows(&movement, None).into_iter().map(|[_, told]| told).collect();
        assert!(told[0].ends_with("FPDUs of up to 1444 bytes in segments of 1448; 863 credits"), "{told:?}");
        assert_eq!(told[1], "2 good now, 9 in all");
        assert_eq!(told[3], "3 MiB of data, 1 MiB of it straight into its place; 4 MiB copied");
        let rdma = to_json(&movement, None)["rdma"].take();
        assert_eq!((&rdma["stags_ever"], &rdma["path"], &rdma["adapter"]), (&json!(9), &json!("tcp"), &Value::Null));
        movement.rdma =
            Some(Rdma { stags: 0, stags_ever: 9, credits: 144, fpdu_max_bytes: 0, segment_bytes: Some(1024) });
        let [_, told] = &rows(&movement, Some("rxe0 (RoCE)"))[0];
        assert_eq!(told, "by the adapter rxe0 (RoCE), path MTU 1024; 144 credits");
        let rdma = to_json(&movement, Some("rxe0 (RoCE)"))["rdma"].take();
        assert_eq!((&rdma["path"], &rdma["adapter"]), (&json!("rdma"), &json!("rxe0 (RoCE)")));
        assert_eq!(rdma["segment_bytes"], json!(1024));
        movement.rdma = Some(Rdma { credits: 144, ..Rdma::default() });
        let [_, told] = &rows(&movement, Some("cxgb4_0 (iWARP)"))[0];
        assert_eq!(told, "by the adapter cxgb4_0 (iWARP); 144 credits", "some tell no MTU");
    }

    #[test]
    fn what_is_copied_beside_an_adapter_is_said_alike_everywhere() {
        let movement = Movement { rdma: Some(Rdma::default()), ..Movement::default() };
        let [what, told] = rows(&movement, Some("rxe0 (RoCE)"))[2].clone();
        let copied = format!("data of up to {}", Size(COPIED_MAX_BYTES as u64));
        assert!(
            what == "zero-copy" && told.contains(&copied) && told.contains("what comes with its command"),
            "{told}"
        );
        for page in ["protocols/iser.md", "tuning.md"] {
            let text = fs::read_to_string(format!("{}/../../docs/{page}", env!("CARGO_MANIFEST_DIR"))).unwrap();
            assert!(text.contains(&copied), "{page} says something else than '{copied}'");
            assert!(!text.contains("no processor copies it"), "{page}");
        }
    }
}
