package cli

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A pcapng file (draft-ietf-opsawg-pcapng) is a sequence of blocks. A block begins with its type and its
// length, and ends with its length again. A magic number in the section header shows the byte order.
const (
	sectionHeader       = 0x0A0D0D0A // the same in both byte orders
	interfaceStatistics = 5
	enhancedPacket      = 6
	byteOrderMagic      = 0x1A2B3C4D
	blockHead           = 12      // bytes: type, length, and the first word of the body
	maxBlock            = 1 << 20 // bytes: larger than the block of any packet
)

// copyBlocks copies whole blocks only, so that the output is a valid capture wherever the input ends. It
// returns how many packets the blocks held, and how many packets the capture's own statistics say were lost.
func copyBlocks(out io.Writer, in io.Reader) (packets, lost uint64, err error) {
	var order binary.ByteOrder = binary.LittleEndian
	block := make([]byte, blockHead, maxBlock)
	for {
		block = block[:blockHead]
		if _, err := io.ReadFull(in, block); err != nil {
			return packets, lost, endOf(err)
		}
		kind := order.Uint32(block)
		if kind == sectionHeader {
			order = orderOf(block)
		}
		length := order.Uint32(block[4:])
		if length < blockHead || length > maxBlock || length%4 != 0 {
			return packets, lost, fmt.Errorf("the answer is no pcapng: a block of %d bytes", length)
		}
		block = block[:length]
		if _, err := io.ReadFull(in, block[blockHead:]); err != nil {
			return packets, lost, brokeOff(err)
		}
		if _, err := out.Write(block); err != nil {
			return packets, lost, err
		}
		switch kind {
		case enhancedPacket:
			packets++
		case interfaceStatistics:
			lost += dropped(order, block)
		}
	}
}

// dropped returns the value of isb_ifdrop if that is the first option of the statistics, or else 0.
func dropped(order binary.ByteOrder, statistics []byte) uint64 {
	const ifdrop, options = 5, 20
	if len(statistics) < options+12 || order.Uint16(statistics[options:]) != ifdrop ||
		order.Uint16(statistics[options+2:]) != 8 {
		return 0
	}
	return order.Uint64(statistics[options+4:])
}

func orderOf(section []byte) binary.ByteOrder {
	if binary.BigEndian.Uint32(section[8:]) == byteOrderMagic {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

// endOf returns nil if the input ends between two blocks, and an error if it ends within a block.
func endOf(err error) error {
	if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return brokeOff(err)
}
