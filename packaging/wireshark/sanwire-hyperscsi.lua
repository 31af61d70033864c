-- The bodies of Sanwire's HyperSCSI packets, after Wireshark's own dissector of the five header bytes.
-- docs/protocols/hyperscsi.md is the specification. See the README beside this file for how to use it.

local sanwire = Proto("sanwire", "HyperSCSI body (Sanwire)")
local bits = bit32 or bit

local PREFIX_BYTES = 24
local TAG_BYTES = 16

local OPCODES = {
    [0x00] = "HCBE_REQUEST", [0x01] = "HCBE_REPLY", [0x10] = "HCC_DEVICE_DISCOVERY", [0x11] = "HCC_ADN_REQUEST",
    [0x12] = "HCC_ADN_REPLY", [0x13] = "HCC_DISCONNECT", [0x20] = "FC_ACK_SNR", [0x21] = "FC_ACK_REPLY",
    [0x30] = "ADDR_REPORT", [0x31] = "ADDR_REPLY",
    [0x32] = "LOCAL_REQUEST", [0x33] = "LOCAL_REPLY",
}
local PROTECTIONS = {
    [0] = "None (CRC32C)", [1] = "Hash (GMAC of AES-256)", [2] = "AES-256-GCM", [3] = "AES-128-GCM",
    [4] = "ChaCha20-Poly1305",
}
local ADN_KINDS = { [1] = "Handshake", [2] = "Announcement", [3] = "Refusal", [4] = "Cookie" }
local REASONS = { [1] = "Unknown connection", [2] = "Not authentic", [3] = "Full", [4] = "Options" }
local REQUEST_KINDS = { [0] = "Command", [1] = "Task management" }
local REPLY_KINDS = { [0] = "Command", [1] = "Task management", [2] = "Not executed: guarded too little" }
local FUNCTIONS = { [1] = "ABORT TASK", [5] = "LOGICAL UNIT RESET" }
local STATUSES = {
    [0x00] = "GOOD", [0x02] = "CHECK CONDITION", [0x04] = "CONDITION MET", [0x08] = "BUSY",
    [0x18] = "RESERVATION CONFLICT", [0x28] = "TASK SET FULL", [0x40] = "TASK ABORTED",
}
local COMMANDS = {
    [0x00] = "TEST UNIT READY", [0x03] = "REQUEST SENSE", [0x04] = "FORMAT UNIT", [0x08] = "READ(6)",
    [0x0a] = "WRITE(6)", [0x12] = "INQUIRY", [0x15] = "MODE SELECT(6)", [0x16] = "RESERVE(6)",
    [0x17] = "RELEASE(6)", [0x1a] = "MODE SENSE(6)", [0x1b] = "START STOP UNIT",
    [0x1e] = "PREVENT ALLOW MEDIUM REMOVAL", [0x25] = "READ CAPACITY(10)", [0x28] = "READ(10)",
    [0x2a] = "WRITE(10)", [0x2e] = "WRITE AND VERIFY(10)", [0x2f] = "VERIFY(10)", [0x34] = "PRE-FETCH(10)",
    [0x35] = "SYNCHRONIZE CACHE(10)", [0x41] = "WRITE SAME(10)", [0x42] = "UNMAP", [0x4d] = "LOG SENSE",
    [0x55] = "MODE SELECT(10)", [0x5a] = "MODE SENSE(10)", [0x5e] = "PERSISTENT RESERVE IN",
    [0x5f] = "PERSISTENT RESERVE OUT", [0x83] = "EXTENDED COPY", [0x88] = "READ(16)",
    [0x89] = "COMPARE AND WRITE", [0x8a] = "WRITE(16)", [0x8e] = "WRITE AND VERIFY(16)", [0x8f] = "VERIFY(16)",
    [0x90] = "PRE-FETCH(16)", [0x91] = "SYNCHRONIZE CACHE(16)", [0x93] = "WRITE SAME(16)",
    [0x9e] = "SERVICE ACTION IN(16)", [0xa0] = "REPORT LUNS", [0xa3] = "MAINTENANCE IN",
    [0xa4] = "MAINTENANCE OUT", [0xa8] = "READ(12)", [0xaa] = "WRITE(12)", [0xae] = "WRITE AND VERIFY(12)",
    [0xaf] = "VERIFY(12)",
}

local f = {
    protection = ProtoField.uint8("sanwire.protection", "Protection", base.DEC, PROTECTIONS, 0x0f),
    epoch = ProtoField.uint8("sanwire.epoch", "Key epoch", base.DEC, nil, 0xf0),
    length = ProtoField.uint16("sanwire.length", "Body length", base.DEC),
    connection = ProtoField.uint32("sanwire.connection", "Connection", base.HEX),
    steering = ProtoField.uint32("sanwire.steering", "Steering word", base.HEX),
    number = ProtoField.uint64("sanwire.number", "Packet number", base.DEC),
    checksum = ProtoField.uint32("sanwire.checksum", "CRC32C", base.HEX),
    checksum_status = ProtoField.string("sanwire.checksum.status", "CRC32C status"),
    padding = ProtoField.bytes("sanwire.padding", "Padding"),
    sealed = ProtoField.bytes("sanwire.sealed", "Sealed body"),
    tag = ProtoField.bytes("sanwire.tag", "Authentication tag"),

    sequence = ProtoField.uint64("sanwire.sequence", "Sequence", base.DEC),
    data_offset = ProtoField.uint32("sanwire.data_offset", "Data offset", base.DEC),
    data_length = ProtoField.uint32("sanwire.data_length", "Data length of the message", base.DEC),
    acknowledgement = ProtoField.uint32("sanwire.acknowledgement", "Acknowledgement (low 32 bits)", base.DEC),
    fragment_flags = ProtoField.uint16("sanwire.fragment_flags", "Flags", base.HEX),
    answer_at_once = ProtoField.bool("sanwire.flags.answer_at_once", "To be acknowledged at once", 16, nil, 0x0001),
    expanded_kib = ProtoField.uint16("sanwire.flags.expanded_kib", "Length when expanded, in KiB (0: not compressed)", base.DEC, nil, 0xffe0),
    head_length = ProtoField.uint16("sanwire.head_length", "Message head length", base.DEC),
    reserved = ProtoField.bytes("sanwire.reserved", "Reserved"),
    data = ProtoField.bytes("sanwire.data", "Data"),

    command = ProtoField.uint64("sanwire.command", "Command number", base.DEC),
    receipts = ProtoField.uint16("sanwire.receipts", "Receipts that the client had", base.DEC),
    receipt = ProtoField.uint16("sanwire.receipt", "Receipt", base.DEC),
    settled_below = ProtoField.uint64("sanwire.settled_below", "Settled below", base.DEC),
    lun = ProtoField.bytes("sanwire.lun", "LUN"),
    lun_number = ProtoField.uint16("sanwire.lun.number", "LUN number", base.DEC),
    room = ProtoField.uint32("sanwire.room", "Room for data-in", base.DEC),
    request_kind = ProtoField.uint8("sanwire.request_kind", "Kind", base.DEC, REQUEST_KINDS),
    cdb_length = ProtoField.uint8("sanwire.cdb.length", "Command block length", base.DEC),
    cdb = ProtoField.bytes("sanwire.cdb", "Command block"),
    cdb_opcode = ProtoField.uint8("sanwire.cdb.opcode", "Operation code", base.HEX, COMMANDS),
    task_function = ProtoField.uint8("sanwire.function", "Function", base.DEC, FUNCTIONS),
    task = ProtoField.uint64("sanwire.task", "Task", base.DEC),
    reply_kind = ProtoField.uint8("sanwire.reply_kind", "Kind", base.DEC, REPLY_KINDS),
    status = ProtoField.uint8("sanwire.status", "Status", base.HEX, STATUSES),
    done = ProtoField.bool("sanwire.done", "Done"),
    incompressible = ProtoField.bool("sanwire.incompressible", "Data is not to be compressed", 8, nil, 0x01),
    demanded = ProtoField.uint8("sanwire.demanded", "Protection of the logical unit", base.DEC, PROTECTIONS),
    sense_length = ProtoField.uint16("sanwire.sense.length", "Sense length", base.DEC),
    sense = ProtoField.bytes("sanwire.sense", "Sense data"),
    request_in = ProtoField.framenum("sanwire.request_in", "Request in", base.NONE, frametype.REQUEST),
    reply_in = ProtoField.framenum("sanwire.reply_in", "Reply in", base.NONE, frametype.RESPONSE),

    revision = ProtoField.uint16("sanwire.revision", "Revision", base.DEC),
    flags = ProtoField.uint8("sanwire.flags", "Flags", base.HEX),
    announce_only = ProtoField.bool("sanwire.flags.announce_only", "Only announce yourself", 8, nil, 0x01),
    client = ProtoField.bytes("sanwire.client", "Client id"),
    session = ProtoField.uint64("sanwire.session", "Session", base.HEX),
    instance = ProtoField.uint64("sanwire.instance", "Instance", base.HEX),
    packet_max = ProtoField.uint32("sanwire.packet_max", "Largest packet of the link", base.DEC),
    server_name = ProtoField.string("sanwire.server_name", "Server name"),
    noise = ProtoField.bytes("sanwire.noise", "Noise message"),
    cookie = ProtoField.bytes("sanwire.cookie", "Cookie"),
    mark = ProtoField.bytes("sanwire.mark", "Mark"),
    proof = ProtoField.bytes("sanwire.proof", "Proof of the refusal"),
    filler = ProtoField.bytes("sanwire.filler", "Filler"),
    adn_kind = ProtoField.uint8("sanwire.adn_kind", "Kind", base.DEC, ADN_KINDS),
    future = ProtoField.uint32("sanwire.adn.connection", "Connection that will be", base.HEX),
    reason = ProtoField.uint8("sanwire.reason", "Reason", base.DEC, REASONS),
}
sanwire.fields = f

local e = {
    short = ProtoExpert.new("sanwire.short", "The packet ends inside a field", expert.group.MALFORMED, expert.severity.ERROR),
    checksum = ProtoExpert.new("sanwire.checksum.bad", "Bad checksum", expert.group.CHECKSUM, expert.severity.ERROR),
    illegal = ProtoExpert.new("sanwire.illegal", "A value that is not allowed", expert.group.PROTOCOL, expert.severity.WARN),
    refusal = ProtoExpert.new("sanwire.refusal", "The server refuses", expert.group.RESPONSE_CODE, expert.severity.NOTE),
}
sanwire.experts = { e.short, e.checksum, e.illegal, e.refusal }

-- Frames of requests and replies, by connection and command number.
local requests, replies = {}, {}
function sanwire.init()
    requests, replies = {}, {}
end

local crc_table = {}
for i = 0, 255 do
    local crc = i
    for _ = 1, 8 do
        local low = crc % 2
        crc = math.floor(crc / 2)
        if low == 1 then
            crc = bits.bxor(crc, 0x82f63b78) % 4294967296
        end
    end
    crc_table[i] = crc
end

local function crc32c(...)
    local crc = 0xffffffff
    for _, bytes in ipairs({ ... }) do
        for i = 0, bytes:len() - 1 do
            local index = bits.bxor(crc % 256, bytes:get_index(i)) % 256
            crc = bits.bxor(math.floor(crc / 256), crc_table[index]) % 4294967296
        end
    end
    return 4294967295 - crc
end

-- A cursor over the body. A field that does not fit is reported once and ends the dissection of the packet.
local Reader = {}
Reader.__index = Reader

local function reader(range, tree)
    return setmetatable({ range = range, tree = tree, at = 0 }, Reader)
end

function Reader:left()
    return self.range:len() - self.at
end

function Reader:take(length)
    if length > self:left() then
        self.tree:add_proto_expert_info(e.short)
        error({ sanwire_short = true })
    end
    if length == 0 then
        return nil
    end
    local taken = self.range:range(self.at, length)
    self.at = self.at + length
    return taken
end

function Reader:add(field, length)
    local taken = self:take(length)
    return taken, taken and self.tree:add(field, taken)
end

function Reader:illegal(item)
    item:add_proto_expert_info(e.illegal)
end

function Reader:enum(field, names)
    local taken, item = self:add(field, 1)
    local value = taken:uint()
    if not names[value] then
        self:illegal(item)
    end
    return value
end

function Reader:text(field)
    local length = self:take(1):uint()
    if length == 0 then
        self.tree:add(field, "")
        return ""
    end
    local taken = self:add(field, length)
    return taken:string(ENC_UTF_8)
end

function Reader:noise()
    local length = self:take(2):uint()
    self:add(f.noise, length)
end

local function key(connection, number)
    return string.format("%08x/%s", connection, tostring(number))
end

local function link(tree, frames, others, field, id, pinfo)
    if not pinfo.visited then
        frames[id] = frames[id] or pinfo.number
    end
    if others[id] then
        tree:add(field, others[id]):set_generated()
    end
end

local function request_head(r, pinfo, connection)
    local number = r:add(f.command, 8):uint64()
    r:add(f.settled_below, 8)
    local lun, item = r:add(f.lun, 8)
    local method = math.floor(lun:range(0, 1):uint() / 64)
    if lun:range(2, 6):bytes():tohex() == "000000000000" and method <= 1 then
        item:add(f.lun_number, lun:range(0, 2), lun:range(0, 2):uint() % 16384)
    else
        r:illegal(item)
    end
    r:add(f.room, 4)
    local kind = r:enum(f.request_kind, REQUEST_KINDS)
    link(r.tree, requests, replies, f.reply_in, key(connection, number), pinfo)
    if kind == 0 then
        local taken, length_item = r:add(f.cdb_length, 1)
        local length = taken:uint()
        r:add(f.receipts, 2)
        if length == 0 or length > 32 then
            r:illegal(length_item)
            return "bad command block"
        end
        local cdb, cdb_item = r:add(f.cdb, length)
        cdb_item:add(f.cdb_opcode, cdb:range(0, 1))
        local code = cdb:range(0, 1):uint()
        return string.format("#%s %s", tostring(number), COMMANDS[code] or string.format("operation 0x%02x", code))
    end
    local code = r:enum(f.task_function, FUNCTIONS)
    r:add(f.receipts, 2)
    local task = r:add(f.task, 8):uint64()
    return string.format("#%s %s of #%s", tostring(number), FUNCTIONS[code] or "function?", tostring(task))
end

local function reply_head(r, pinfo, connection)
    local number = r:add(f.command, 8):uint64()
    local kind = r:enum(f.reply_kind, REPLY_KINDS)
    local text
    if kind == 0 then
        local status = r:enum(f.status, STATUSES)
        text = STATUSES[status] or string.format("status 0x%02x", status)
    elseif kind == 2 then
        r:add(f.reserved, 1)
        text = "guarded too little"
    else
        local taken, item = r:add(f.done, 1)
        if taken:uint() > 1 then
            r:illegal(item)
        end
        text = taken:uint() == 1 and "done" or "not done"
    end
    local length, item = r:add(f.sense_length, 2)
    if length:uint() > 252 then
        r:illegal(item)
    end
    r:enum(f.demanded, PROTECTIONS)
    r:add(f.incompressible, 1)
    r:add(f.receipt, 2)
    r:add(f.sense, length:uint())
    link(r.tree, replies, requests, f.request_in, key(connection, number), pinfo)
    return string.format("#%s %s", tostring(number), text)
end

local function data_packet(r, pinfo, connection, fragment, is_reply)
    r:add(f.sequence, 8)
    local offset = r:add(f.data_offset, 4):uint()
    local length = r:add(f.data_length, 4):uint()
    r:add(f.acknowledgement, 4)
    local head_length, head_item = r:add(f.head_length, 2)
    head_length = head_length:uint()
    local flags, flags_item = r:add(f.fragment_flags, 2)
    flags_item:add(f.answer_at_once, flags)
    flags_item:add(f.expanded_kib, flags)
    if (head_length == 0) == (fragment == 0) then
        r:illegal(head_item)
    end
    local text = string.format("fragment %d", fragment)
    if head_length > 0 then
        local range = r:take(head_length)
        local head = reader(range, r.tree:add(range, is_reply and "Head of the reply" or "Head of the request"))
        text = (is_reply and reply_head or request_head)(head, pinfo, connection)
    end
    local data = r:left()
    if offset + data > length then
        r:illegal(r.tree)
    end
    r:add(f.data, data)
    if length > 0 then
        text = string.format("%s, data %d+%d of %d", text, offset, data, length)
    end
    return text
end

local function discovery(r)
    local revision, item = r:add(f.revision, 2)
    if revision:uint() ~= 3 then
        r:illegal(item)
    end
    local flags, flags_item = r:add(f.flags, 1)
    flags_item:add(f.announce_only, flags)
    r:add(f.reserved, 1)
    r:add(f.client, 16)
    r:add(f.session, 8)
    r:add(f.packet_max, 4)
    local name = r:text(f.server_name)
    r:noise()
    local cookie_length = r:left() > 0 and r:take(1):uint() or 0
    r:add(f.cookie, cookie_length)
    r:add(f.filler, r:left())
    local what = flags:uint() % 2 == 1 and "who serves?" or "first step"
    return name == "" and what or string.format("%s (%s)", what, name)
end

local function adn_request(r)
    local kind = r:enum(f.adn_kind, ADN_KINDS)
    if kind == 1 then
        local connection = r:add(f.future, 4):uint()
        r:noise()
        r:add(f.mark, 16)
        return string.format("second step, connection 0x%08x", connection)
    elseif kind == 2 then
        r:add(f.packet_max, 4)
        r:add(f.instance, 8)
        return "announcement of " .. r:text(f.server_name)
    elseif kind == 3 then
        local reason = r:enum(f.reason, REASONS)
        r:add(f.proof, r:left())
        r.tree:add_proto_expert_info(e.refusal)
        return "refusal: " .. (REASONS[reason] or "unknown reason")
    elseif kind == 4 then
        r:add(f.cookie, 16)
        return "first step again, with this cookie"
    end
    return "unknown kind"
end

local function adn_reply(r)
    r:enum(f.adn_kind, { ADN_KINDS[1] })
    r:noise()
    return "third step"
end

local function check(tree, packet, range, body, opcode, protection)
    local claimed = range:uint()
    local item = tree:add(f.checksum, range)
    local status
    if protection ~= 0 then
        status = "None (protected by a key)"
    elseif opcode < 0x10 then
        status = "Unverified (keyed with the connection's secret)"
    else
        local covered = (packet:range(0, 20):bytes())
        local sum = body and crc32c(covered, (body:bytes())) or crc32c(covered)
        status = sum == claimed and "Good" or string.format("Bad, should be 0x%08x", sum)
        if sum ~= claimed then
            item:add_proto_expert_info(e.checksum)
        end
    end
    item:add(f.checksum_status, status):set_generated()
end

local function body_of(r, pinfo, opcode, protection, connection, fragment)
    if protection ~= 0 then
        if r:left() < TAG_BYTES then
            r.tree:add_proto_expert_info(e.short)
            return "too short"
        end
        local covered = r:take(r:left() - TAG_BYTES)
        r:add(f.tag, TAG_BYTES)
        -- A hash hides nothing; what is encrypted shows nothing.
        if protection ~= 1 then
            if covered then
                r.tree:add(f.sealed, covered)
            end
            return "sealed"
        end
        if covered then
            r = reader(covered, r.tree)
        end
    end
    if opcode == 0x00 or opcode == 0x01 then
        return data_packet(r, pinfo, connection, fragment, opcode == 0x01)
    end
    local handler = ({ [0x10] = discovery, [0x11] = adn_request, [0x12] = adn_reply })[opcode]
    if not handler then
        r:illegal(r.tree)
        return "must be sealed"
    end
    return handler(r)
end

local function dissect_body(packet, pinfo, root)
    local tree = root:add(sanwire, packet)
    local head = reader(packet, tree)
    local fragment = packet:range(1, 2):uint() % 1024
    local opcode = packet:range(4, 1):uint() % 128
    head.at = 5
    local guard = head:take(1)
    local protection, epoch = guard:uint() % 16, math.floor(guard:uint() / 16)
    local protection_item = tree:add(f.protection, guard)
    local epoch_item = tree:add(f.epoch, guard)
    if not PROTECTIONS[protection] then
        head:illegal(protection_item)
    end
    if protection == 0 and epoch ~= 0 then
        head:illegal(epoch_item)
    end
    local length = head:add(f.length, 2):uint()
    -- The first step has no connection yet, and the second is addressed like the first.
    local is_steered = opcode == 0x10
    local connection = head:add(is_steered and f.steering or f.connection, 4):uint()
    local number = head:add(f.number, 8):uint64()
    local sum = head:take(4)
    local body = head:take(length)
    check(tree, packet, sum, body, opcode, protection)
    if head:left() > 0 then
        head:add(f.padding, head:left())
    end
    local text
    if body then
        local ok
        ok, text = pcall(body_of, reader(body, tree), pinfo, opcode, protection, connection, fragment)
        if not ok then
            if type(text) ~= "table" then
                error(text, 0)
            end
            text = "malformed"
        end
    else
        text = "no body"
    end
    local name = OPCODES[opcode] or string.format("opcode 0x%02x", opcode)
    pinfo.cols.protocol = "HyperSCSI"
    pinfo.cols.info = string.format("%s %s [%08x/%s]", name, text, connection, tostring(number))
end

local header = Dissector.get("hyperscsi")

function sanwire.dissector(buffer, pinfo, root)
    header:call(buffer, pinfo, root)
    if buffer:captured_len() < PREFIX_BYTES then
        return buffer:len()
    end
    local packet = buffer:range(0, buffer:captured_len())
    local ok, failure = pcall(dissect_body, packet, pinfo, root)
    if not ok and type(failure) ~= "table" then
        error(failure, 0)
    end
    return buffer:len()
end

DissectorTable.get("ethertype"):add(0x889a, sanwire)
DissectorTable.get("udp.port"):add(5674, sanwire)
