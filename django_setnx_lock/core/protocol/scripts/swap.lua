-- Put the token of who takes the lock over in the place of the one by which it was given away. Sent twice, it is done once.
-- With the same token twice it is given away: nobody renews it from then on, as the record says.
-- ARGV  1 token that was given away  2 the new one  3 fence of the lock  4 lease that is left at the least  5 holder record
-- Reply {'OK', fence, 'listed', false}  {'LOST', who forced it and why (JSON), or false}
--- lib
local token, value, fence = ARGV[2], standing(), read_meta()
if is_gone(token) or fence ~= tonumber(ARGV[3]) or value ~= ARGV[1] and value ~= token then
  return {'LOST', redis.call('HGET', BESIDE .. 'forced', ARGV[1])}
elseif value ~= token or token == ARGV[1] then
  keep(value, nil, token, math.max(ARGV[4], redis.call('PTTL', NAME)))
  local record = token == ARGV[1] and ARGV[5] or string.gsub(ARGV[5], '}$', ',"since":' .. whole(now) .. '}')
  redis.call('SET', META, table.concat({whole(fence), token, record}, ' '), 'KEEPTTL')
  if token ~= ARGV[1] then
    redis.call('SET', NAME, token, 'KEEPTTL')
    refuse(ARGV[1])
  end
end
return {'OK', whole(fence), 'listed', false}
