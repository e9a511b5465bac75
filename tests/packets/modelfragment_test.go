package packets

import "encoding/binary"

// forgetQueued lets the datapath forget a fragment of its queue, as it may when
// there are many: otherwise it would come again by itself.
func (w *world) forgetQueued(h hook, frame []byte) {
	v, _ := parseFrame(frame)
	v.hook = h
	key := v.fragmentKey().encoded()
	_ = w.tables["fragments"].Delete(key)
	_ = w.tables["fragment_queue"].Delete(append(key, 0, 0, 0, 0))
}

// encoded is a key as the map has it.
func (k fragmentKey) encoded() []byte {
	src, dst := k.src.As16(), k.dst.As16()
	b := append(src[:], dst[:]...)
	if k.src.Is4() {
		b = append(b, 0, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(k.id))
		b[32], b[33], b[34], b[35] = b[34], b[35], 0, 0 // it is 16 bits, as they stand in the header
	} else {
		b = binary.BigEndian.AppendUint32(b, k.id)
	}
	return append(b, uint8(k.protocol), map[hook]uint8{in: 1, out: 2}[k.hook], 0, 0)
}
