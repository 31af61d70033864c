-- VISA (UDP and TCP port 5675). docs/protocols/visa.md is the specification. See the README beside this file for how to use it.

local visa = Proto("visa", "Virtual Internet SCSI Adapter")
local bits = bit32 or bit

local PORT = 5675
local HEADER_BYTES, TAG_BYTES, LENGTH_BYTES = 24, 16, 4

local KINDS = {
    [0] = "CONNECT", [1] = "ACCEPT", [2] = "CONFIRM", [3] = "DATA", [4] = "ACK", [5] = "NAK", [6] = "PING",
    [7] = "CLOSE", [8] = "AGREE",
}
local GUARDINGS = {
    [0] = "Checksum", [1] = "Hash", [2] = "AES-256-GCM", [3] = "AES-128-GCM", [4] = "ChaCha20-Poly1305", [15] = "None",
}
local CONNECTS = { [0] = "Connection", [1] = "Who is there?" }
local ACCEPTS = { [0] = "Challenge", [1] = "Cookie", [2] = "Refusal", [3] = "Who is there" }
local REASONS = { [1] = "Unknown connection", [2] = "Not authentic", [3] = "Full", [4] = "Outdated" }
local REQUESTS = { [0] = "Command", [1] = "Task management", [2] = "Management" }
local REPLIES = { [0] = "Status", [1] = "Task management", [2] = "Guarded too little", [3] = "Management" }

local f = {
    magic = ProtoField.uint8("visa.magic", "Magic", base.HEX),
    version = ProtoField.uint8("visa.version", "Version", base.DEC, nil, 0xf0),
    kind = ProtoField.uint8("visa.kind", "Kind", base.DEC, KINDS, 0x0f),
    first = ProtoField.bool("visa.first", "First of its message", 8, nil, 0x01),
    last = ProtoField.bool("visa.last", "Last of its message", 8, nil, 0x02),
    from_device = ProtoField.bool("visa.from_device", "From the device", 8, nil, 0x04),
    ack_now = ProtoField.bool("visa.ack_now", "To be acknowledged at once", 8, nil, 0x08),
    guarding = ProtoField.uint8("visa.guarding", "Guarding", base.DEC, GUARDINGS),
    tag = ProtoField.uint16("visa.tag", "Tag", base.DEC),
    length = ProtoField.uint16("visa.length", "Bytes of payload", base.DEC),
    connection = ProtoField.uint32("visa.connection", "Connection", base.HEX),
    sequence = ProtoField.uint32("visa.sequence", "Sequence", base.DEC),
    offset = ProtoField.uint32("visa.offset", "Offset in the message", base.DEC),
    check = ProtoField.uint32("visa.check", "Check", base.HEX),
    seal = ProtoField.bytes("visa.seal", "Seal"),
    sealed = ProtoField.bytes("visa.sealed", "Payload (sealed)"),
    packet_length = ProtoField.uint32("visa.packet_length", "Bytes of the packet", base.DEC),

    head_length = ProtoField.uint16("visa.head_length", "Bytes of the head", base.DEC),
    data_length = ProtoField.uint32("visa.data_length", "Bytes of data in the message", base.DEC),
    data = ProtoField.bytes("visa.data", "Data"),
    number = ProtoField.uint64("visa.number", "Command number", base.DEC),
    settled_below = ProtoField.uint64("visa.settled_below", "Settled below", base.DEC),
    lun = ProtoField.bytes("visa.lun", "LUN"),
    room = ProtoField.uint32("visa.room", "Room for data", base.DEC),
    request = ProtoField.uint8("visa.request", "Kind of request", base.DEC, REQUESTS),
    cdb_length = ProtoField.uint8("visa.cdb_length", "Bytes of the command block, or function", base.DEC),
    receipts = ProtoField.uint16("visa.receipts", "Receipts up to", base.DEC),
    cdb = ProtoField.bytes("visa.cdb", "Command block"),
    opcode = ProtoField.uint8("visa.opcode", "Operation code", base.HEX),
    task = ProtoField.uint64("visa.task", "Command to manage", base.DEC),
    reply = ProtoField.uint8("visa.reply", "Kind of reply", base.DEC, REPLIES),
    status = ProtoField.uint8("visa.status", "Status", base.HEX),
    sense_length = ProtoField.uint16("visa.sense_length", "Bytes of sense data", base.DEC),
    unit_protection = ProtoField.uint8("visa.unit_protection", "Protection that the unit demands", base.DEC, GUARDINGS),
    unit_flags = ProtoField.uint8("visa.unit_flags", "Flags of the unit", base.HEX),
    receipt = ProtoField.uint16("visa.receipt", "Receipt", base.DEC),
    sense = ProtoField.bytes("visa.sense", "Sense data"),

    connect = ProtoField.uint8("visa.connect", "What is asked for", base.DEC, CONNECTS),
    accept = ProtoField.uint8("visa.accept", "Kind of answer", base.DEC, ACCEPTS),
    attempt = ProtoField.uint64("visa.attempt", "Attempt", base.HEX),
    client = ProtoField.bytes("visa.client", "Client id"),
    session = ProtoField.uint64("visa.session", "Session", base.HEX),
    server_name = ProtoField.string("visa.server_name", "Server name"),
    noise = ProtoField.bytes("visa.noise", "Noise message"),
    mark = ProtoField.bytes("visa.mark", "Mark"),
    new_connection = ProtoField.uint32("visa.new_connection", "Connection that will be", base.HEX),
    cookie = ProtoField.bytes("visa.cookie", "Cookie"),
    reason = ProtoField.uint8("visa.reason", "Reason", base.DEC, REASONS),
    proof = ProtoField.bytes("visa.proof", "Proof of the refusal"),
    instance = ProtoField.uint64("visa.instance", "Instance", base.HEX),
    packet_max = ProtoField.uint16("visa.packet_max", "Largest packet of the link", base.DEC),
    rest = ProtoField.bytes("visa.rest", "Rest"),
}
visa.fields = f

local short = ProtoExpert.new("visa.short", "The packet ends inside a field", expert.group.MALFORMED, expert.severity.ERROR)
local illegal = ProtoExpert.new("visa.illegal", "A value that is not allowed", expert.group.PROTOCOL, expert.severity.WARN)
visa.experts = { short, illegal }

-- Reads one field after the other. A packet that ends inside one ends the dissection.
local function reader(range, tree)
    local self = { at = 0, tree = tree }
    function self.left()
        return range and range:len() - self.at or 0
    end
    function self.take(length)
        if self.left() < length then
            tree:add_proto_expert_info(short)
            error({ "short" })
        end
        self.at = self.at + length
        return length > 0 and range:range(self.at - length, length) or nil
    end
    function self.add(field, length)
        local taken = self.take(length)
        if taken then
            tree:add(field, taken)
        end
        return taken
    end
    function self.optional(field)
        return self.add(field, self.take(1):uint())
    end
    return self
end

local function request(body)
    local number = body.add(f.number, 8):uint64()
    body.add(f.settled_below, 8)
    body.add(f.lun, 8)
    body.add(f.room, 4)
    local kind = body.add(f.request, 1):uint()
    local length = body.add(f.cdb_length, 1):uint()
    body.add(f.receipts, 2)
    if kind == 0 and length > 0 then
        local cdb = body.add(f.cdb, length)
        body.tree:add(f.opcode, cdb:range(0, 1))
        return string.format("command %s: %02x", tostring(number), cdb:range(0, 1):uint())
    end
    if kind == 1 then
        body.add(f.task, 8)
    end
    return string.format("%s %s", (REQUESTS[kind] or "request"):lower(), tostring(number))
end

local function reply(body)
    local number = body.add(f.number, 8):uint64()
    local kind = body.add(f.reply, 1):uint()
    local status = body.add(f.status, 1):uint()
    local sense = body.add(f.sense_length, 2):uint()
    body.add(f.unit_protection, 1)
    body.add(f.unit_flags, 1)
    body.add(f.receipt, 2)
    body.add(f.sense, sense)
    return string.format("answer %s: %s %02x", tostring(number), (REPLIES[kind] or "reply"):lower(), status)
end

local function data(body, first, from_device)
    if not first then
        body.add(f.data, body.left())
        return "more data"
    end
    local head = body.add(f.head_length, 2):uint()
    body.take(2)
    body.add(f.data_length, 4)
    local before = body.at
    local text = from_device and reply(body) or request(body)
    if body.at - before ~= head then
        body.tree:add_proto_expert_info(illegal)
    end
    if body.left() > 0 then
        body.add(f.data, body.left())
    end
    return text
end

local function connect(body)
    local kind = body.add(f.connect, 1):uint()
    body.add(f.attempt, 8)
    body.add(f.client, 16)
    body.add(f.session, 8)
    body.optional(f.server_name)
    body.add(f.noise, 32)
    body.optional(f.cookie)
    return CONNECTS[kind] or "?"
end

local function accept(body)
    local kind = body.add(f.accept, 1):uint()
    body.add(f.attempt, 8)
    if kind == 0 then
        body.add(f.new_connection, 4)
        body.add(f.mark, 16)
        body.add(f.noise, body.take(2):uint())
    elseif kind == 1 then
        body.add(f.cookie, 16)
    elseif kind == 2 then
        body.add(f.reason, 1)
        body.optional(f.proof)
    elseif kind == 3 then
        body.add(f.instance, 8)
        body.add(f.packet_max, 2)
        body.optional(f.server_name)
    end
    return ACCEPTS[kind] or "?"
end

local function confirm(body)
    body.add(f.attempt, 8)
    body.add(f.client, 16)
    body.add(f.noise, body.take(2):uint())
    return "third step"
end

local function payload(tree, packet, kind, guarding, flags)
    local length = packet:range(6, 2):uint()
    local seal = (guarding == 0 or guarding == 15) and 0 or TAG_BYTES
    local whole = reader(packet:len() > HEADER_BYTES and packet:range(HEADER_BYTES) or nil, tree)
    local range = whole.take(length)
    local is_plain = kind <= 2 or kind == 3 and (seal == 0 or guarding == 1)
    local text = "sealed"
    if is_plain then
        local body = reader(range, tree)
        if kind == 0 then
            text = connect(body)
        elseif kind == 1 then
            text = accept(body)
        elseif kind == 2 then
            text = confirm(body)
        else
            text = data(body, bits.band(flags, 1) ~= 0, bits.band(flags, 4) ~= 0)
        end
        if body.left() > 0 then
            body.add(f.rest, body.left())
        end
    elseif range then
        tree:add(f.sealed, range)
    end
    whole.add(f.seal, seal)
    return text
end

local function dissect(packet, pinfo, root)
    local tree = root:add(visa, packet)
    pinfo.cols.protocol = "VISA"
    if packet:len() < HEADER_BYTES then
        tree:add_proto_expert_info(short)
        return
    end
    tree:add(f.magic, packet:range(0, 1))
    tree:add(f.version, packet:range(1, 1))
    tree:add(f.kind, packet:range(1, 1))
    local flags = packet:range(2, 1)
    for _, field in ipairs({ f.first, f.last, f.from_device, f.ack_now }) do
        tree:add(field, flags)
    end
    tree:add(f.guarding, packet:range(3, 1))
    tree:add(f.tag, packet:range(4, 2))
    tree:add(f.length, packet:range(6, 2))
    tree:add(f.connection, packet:range(8, 4))
    tree:add(f.sequence, packet:range(12, 4))
    tree:add(f.offset, packet:range(16, 4))
    tree:add(f.check, packet:range(20, 4))
    local kind, guarding = bits.band(packet:range(1, 1):uint(), 0x0f), packet:range(3, 1):uint()
    local ok, text = pcall(payload, tree, packet, kind, guarding, flags:uint())
    if not ok then
        if type(text) ~= "table" then
            error(text, 0)
        end
        text = "malformed"
    end
    local name = KINDS[kind] or string.format("kind %d", kind)
    pinfo.cols.info = string.format("%s %s [%08x]", name, text, packet:range(8, 4):uint())
end

function visa.dissector(buffer, pinfo, root)
    if pinfo.port_type == 3 or buffer:captured_len() > 0 and buffer:range(0, 1):uint() == 0x56 then
        dissect(buffer:range(0, buffer:captured_len()), pinfo, root)
        return buffer:len()
    end
    return 0
end

-- Over TCP each packet has its length in front.
local stream = Proto("visa_stream", "VISA over TCP")

function stream.dissector(buffer, pinfo, root)
    local function length(tvb, _, at)
        return LENGTH_BYTES + tvb:range(at, LENGTH_BYTES):uint()
    end
    local function one(tvb, info, tree)
        tree:add(f.packet_length, tvb:range(0, LENGTH_BYTES))
        if tvb:len() > LENGTH_BYTES then
            dissect(tvb:range(LENGTH_BYTES), info, tree)
        end
        return tvb:len()
    end
    dissect_tcp_pdus(buffer, root, LENGTH_BYTES, length, one)
    return buffer:len()
end

DissectorTable.get("udp.port"):add(PORT, visa)
DissectorTable.get("tcp.port"):add(PORT, stream)
