-- ARGV: version, how often it was used since this was last said, when last (ms)   Returns 1, or 0 for another version
local r = read(HEADER_BYTES - 1)
if not r or r.kind ~= 'E' or r.version ~= tonumber(ARGV[1]) then
  return 0
end
redis.call('SETRANGE', KEY, AT_USES,
  struct.pack('>dd', r.uses + tonumber(ARGV[2]), math.max(r.used_at, tonumber(ARGV[3]))))
return 1
