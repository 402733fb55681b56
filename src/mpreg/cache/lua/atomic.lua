-- What the exact operations on a value share. `old` is what is there now.
local old, structure = read()
local there = old ~= nil and old.kind == 'E'
local old_value = there and value_of(old) -- false if nothing is there: nil would end the answer

-- ttl: ms, or '' to keep the TTL that is there. Tags and dependencies stay.
local function change(value, ttl, meta)
  local fields = {version = next_version(old)}
  if there then
    fields.cost, fields.uses, fields.used_at = old.cost, old.uses, old.used_at
    fields.expires, fields.fresh = old.expires, old.fresh
    meta = old.data:sub(HEADER_BYTES + 1, HEADER_BYTES + old.meta_bytes)
  end
  if ttl ~= '' then
    fields.expires, fields.fresh = now + tonumber(ttl), 0
  end
  write(old, fields, meta, value, there and ttl == '')
  return fields.version
end
