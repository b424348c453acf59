-- Put where a holder hears whether an operator asked it to stop, which stands in its record as the last member,
-- "stop", and so goes when the record goes. An object in a string of the record has its quotes escaped.
local STOP = ',"stop":{'

-- That reply, with the record behind what it has to say if there is such a request in it. A fence may precede it.
local function with_stop(reply, known)
  if type(known) == 'string' and string.find(known, STOP, 1, true) then
    reply[3] = string.match(known, '{.*')
  end
  return reply
end

-- So of one who holds the lock alone.
local function with_own_stop(reply, token)
  local meta = redis.pcall('GET', META)
  if type(meta) == 'string' and string.find(meta, STOP, 1, true) then
    local _, owner, record = read_meta(meta)
    return owner == token and with_stop(reply, record) or reply
  end
  return reply
end
