-- Forget the holder that the operator saw, whose lease is over, and nobody else: as if it had let the lock go.
-- KEYS  1 name  2 meta  [3 index  [4 history]]
-- ARGV  1 token seen  2 's' or 'ms': in what unit a number at the name is the time until which the lock is valid; ''
--       if it is none  3 who and why (JSON)
-- Reply {'OK'}  {'CHANGED'} somebody has, or had, it since  {'FREE'} no such holder is known any more
--- clock
--- reading
--- has_let_go
--- history
--- timestamp
local value, meta = redis.pcall('GET', KEYS[1]), redis.pcall('GET', KEYS[2])
if value then
  local is_time = type(value) == 'string' and MS[ARGV[2]] and as_time(value, ARGV[2])
  if not is_time or time_left(value, read_known(type(meta) == 'string' and meta or ''), ARGV[2]) then
    return {'CHANGED'}
  end
end
local _, owner = read_meta(type(meta) == 'string' and meta or '')
if not owner then
  return {'FREE'}
end
if owner ~= ARGV[1] then
  return {'CHANGED'}
end
if not has_let_go(meta) then
  redis.call('SET', KEYS[2], meta .. ' ', 'PX', META_MARGIN)
  if KEYS[4] then
    redis.pcall('XADD', KEYS[4], entry(KEYS[1], 'dismissed', meta, ARGV[3]))
  end
end
if KEYS[3] then
  redis.call('ZREM', KEYS[3], KEYS[1])
end
return {'OK'}
